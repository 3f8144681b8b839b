"""Small tensors of a run without data have data, as long as nobody writes unknown numbers over them."""

import pytest
import torch

from drkernel.judge.trusted.sizes.small_data import few, with_small_data


def test_what_is_read_back_of_small_tensors_is_known():
    with few():
        counts = torch.bincount(torch.randint(0, 8, (1000,)), minlength=8)
        assert sum(counts.tolist()) == int(counts.cumsum(0)[-1]) == 1000
        counts[1:3] = 5
        assert counts[2].item() == 5 and bool((counts[1:3] == 5).all())


def test_shapes_that_depend_on_small_tensors_are_known_and_large_ones_have_no_data():
    with few():
        large, mask = torch.randn(2**11, 2**30), torch.arange(2**11) % 4 == 0
        assert large[mask].shape == (2**9, 2**30)
        large[mask] = 0.0
        assert (large @ large[:8].T).shape == (2**11, 8)
        with pytest.raises(Exception, match=r"DataDependent|_local_scalar_dense"):
            large[0, 0].item()


def test_what_unknown_numbers_were_written_to_is_not_known_any_more():
    with with_small_data(64):
        known, unknown = torch.arange(8), torch.arange(1000)
        view = known[2:4]
        assert view.tolist() == [2, 3]
        known[3:4].copy_(unknown[:1])
        with pytest.raises(Exception, match=r"DataDependent|_local_scalar_dense"):
            view.tolist()


def test_what_takes_long_has_no_data():
    with with_small_data(64):
        for _ in range(200):
            value = torch.arange(8)
        with pytest.raises(Exception, match=r"DataDependent|_local_scalar_dense"):
            value.tolist()
