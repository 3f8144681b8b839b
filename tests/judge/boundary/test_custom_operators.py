"""Nothing that a submission registers with PyTorch's dispatcher computes unseen."""

from __future__ import annotations

import importlib
import itertools

import pytest
import torch

from drkernel.judge.boundary.aten import install, record

install()
numbers = itertools.count()


@pytest.fixture
def library():
    return torch.library.Library(f"drkernel_test_{next(numbers)}", "DEF")


def seen(library, register) -> list[str]:
    """The operators that are recorded while an operator runs whose implementations `register` adds."""
    library.define("f(Tensor x) -> Tensor")
    register()
    x = torch.ones(3)
    with torch.no_grad(), record() as trace:
        getattr(torch.ops, library.ns).f(x)
    return [row.name for row in trace.rows]


KEYS = ["CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "BackendSelect", "Python"]


@pytest.mark.parametrize("key", KEYS)
def test_an_implementation_is_followed_whatever_its_key(library, key):
    assert seen(library, lambda: library.impl("f", lambda x: x.neg(), key)) == ["neg"]


@pytest.mark.parametrize("key", KEYS)
def test_so_is_one_that_is_given_keys(library, key):
    assert seen(library, lambda: library.impl("f", lambda keys, x: x.neg(), key, with_keyset=True)) == ["neg"]


@pytest.mark.parametrize("key", KEYS)
def test_so_is_one_below_library(library, key):
    assert seen(library, lambda: library.m.impl("f", key, lambda x: x.neg(), False)) == ["neg"]


def test_so_is_one_behind_a_key_that_is_passed_over(library):
    def register():
        library.impl("f", torch.library.fallthrough_kernel, "Python")
        library.impl("f", lambda x: x.neg(), "CPU")

    assert seen(library, register) == ["neg"]


@pytest.mark.parametrize("namespace", ["aten", "prims", "_"])
def test_operators_of_pytorch_stay_as_they_are(namespace):
    with pytest.raises(RuntimeError, match="may not be implemented anew"):
        torch.library.Library(namespace, "IMPL")


def test_no_other_way_of_registering_is_there(library):
    known = {"define", "impl", "reset", "register_ad_inplace_or_view_fallback"}  # the last one takes no function
    assert {name for name in dir(library.m) if not name.startswith("_")} <= known


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Imports a module with a new name and this text."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(text: str):
        name = f"drkernel_test_module_{next(numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        return importlib.import_module(name)

    return load


def test_modules_of_libraries_may_add_to_them(imported):
    assert imported("import torch\nlibrary = torch.library.Library('aten', 'IMPL', 'MPS')").library.ns == "aten"


def test_what_runs_during_an_import_is_followed_like_all_else(imported):
    name = f"drkernel_test_{next(numbers)}"
    imported(f"""
import torch

class Garbage:
    def __del__(self):
        global library
        library = torch.library.Library({name!r}, "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x.neg(), "CompositeExplicitAutograd")

Garbage()
""")
    x = torch.ones(3)
    with record() as trace:
        getattr(torch.ops, name).f(x)
    assert [row.name for row in trace.rows] == ["neg"]


def test_nor_does_an_import_change_what_is_there(imported):
    kept = imported("import torch\nlibrary = torch.library.Library('aten', 'IMPL')").library
    kept.impl("relu", lambda x: x.neg(), "CPU")
    assert torch.relu(torch.ones(3)).tolist() == [1, 1, 1]


def test_what_runs_while_a_tensor_is_printed_is_recorded():
    class Threshold:
        def __lt__(self, other):
            self.found = torch.ones(3).neg()
            return False

    torch.set_printoptions(threshold=Threshold())
    try:
        with record() as trace:
            repr(torch.ones(3))
    finally:
        torch.set_printoptions(profile="default")
    assert "neg" in [row.name for row in trace.rows]


def test_an_operator_that_writes_into_an_argument_may_be_defined():
    @torch.library.custom_op("followed_here::doubled_into", mutates_args={"out"})
    def doubled_into(x: torch.Tensor, out: torch.Tensor) -> None:
        torch.mul(x, 2, out=out)

    out = torch.zeros(3)
    with record() as trace:
        doubled_into(torch.ones(3), out)
    assert out.tolist() == [2.0, 2.0, 2.0] and "mul" in {row.name for row in trace.rows}
