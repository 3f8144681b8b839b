"""PyTorch's profiler tells which operators no recorder has executed."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from drkernel.judge.boundary.witness import UnseenOperator, executing, watched


class Executes(TorchDispatchMode):
    """A recorder that records nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with executing(func._schema.name):
            return func(*args, **(kwargs or {}))


def no_reads(number):
    raise AssertionError(f"{number} numbers were read")


def test_what_a_recorder_executes_is_seen():
    x = torch.rand(8, 8)
    with watched(no_reads), Executes():
        torch.nn.functional.linear(x, x, x[0]).softmax(1).sort()
        x.sum().item()


def test_what_is_made_of_others_and_views_move_nothing():
    with watched(no_reads):
        torch.empty(4, 4).view(16).to(torch.float32).contiguous()[3:]


def test_an_operator_outside_of_a_recorder_is_an_error():
    x = torch.rand(8)
    with pytest.raises(UnseenOperator, match=r"aten::sort"), watched(no_reads):
        with Executes():
            x.neg()
        x.sort()


def test_so_is_a_second_one_where_one_is_executed():
    x = torch.rand(8)
    with pytest.raises(UnseenOperator, match=r"aten::sort"), watched(no_reads), executing("aten::neg"):
        x.neg()
        x.sort()


def test_so_is_one_that_comes_before_the_one_that_is_executed():
    """Garbage may be collected, or an argument asked for its number, just before the operator is called."""
    x = torch.rand(8)
    with pytest.raises(UnseenOperator, match=r"aten::sort"), watched(no_reads), executing("aten::neg"):
        x.sort()


def test_so_is_one_that_is_made_of_others_only_where_a_recorder_is_on():
    x = torch.rand(1, 8)
    with watched(no_reads), Executes():
        torch.max_pool1d(x, 2)
    with pytest.raises(UnseenOperator, match=r"aten::max_pool1d"), watched(no_reads):
        torch.max_pool1d(x, 2)


def test_so_is_one_in_a_range_that_has_an_operators_name():
    x = torch.rand(8)
    with pytest.raises(UnseenOperator, match=r"aten::sort"), watched(no_reads), record_function("aten::empty"):
        x.sort()


def test_so_is_one_that_computes_on_a_cpu_and_calls_recorded_ones():
    x = torch.rand(8, 8)
    with pytest.raises(UnseenOperator, match=r"aten::fbgemm_linear_fp16_weight"), watched(no_reads), Executes():
        torch.fbgemm_linear_fp16_weight(x, torch.fbgemm_pack_gemm_matrix_fp16(x), x[0])


def test_numbers_that_are_read_are_told():
    x, told = torch.rand(8), []
    with watched(told.append):
        torch.tensor([x[0], x[1]])
    assert told == [2]


def test_an_error_of_the_block_is_its_own_and_the_next_block_works():
    with pytest.raises(ZeroDivisionError), watched(no_reads):
        raise ZeroDivisionError
    with watched(no_reads):
        torch.empty(1)
