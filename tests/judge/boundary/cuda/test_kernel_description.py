"""A kernel's description comes from a runner that may have been taken over: what is not exactly one is refused."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from drkernel.judge.boundary.cuda import kernel_description
from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import NotSerializable

GOOD = {
    "kernel": "none",
    "signature": {"x": "*fp32", "y": ["i32", ["i64"]]},
    "constants": [],
    "attrs": [],
    "options": {},
}


@pytest.fixture(autouse=True)
def submission(monkeypatch):
    monkeypatch.setitem(sys.modules, "submission", ModuleType("submission"))


@pytest.mark.parametrize(
    "description",
    [
        None, "text", {}, {"kernel": "none", "problem": "no global name"}, GOOD | {"kernel": 1}, GOOD | {"more": 1},
        GOOD | {"signature": {"x": "i32; system()"}}, GOOD | {"signature": {"x": [[[[[["i32"]]]]]]}},
        GOOD | {"signature": {"x": ["i32"] * 1000}}, GOOD | {"constants": [[["0"], 1]]}, GOOD | {"constants": [[0, 1]]},
        GOOD | {"constants": [[[0], 1.5]]}, GOOD | {"attrs": {}}, GOOD | {"options": {"a": {"type": "object"}}},
        GOOD | {"options": {"a": {"type": "float", "hex": 1.0}}}, GOOD | {"options": {"a": {"type": "list"}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_description_is_a_violation(description):
    with pytest.raises(ProtocolViolation):
        kernel_description.load(description, "submission")


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"kernel": "os:system"}, {"kernel": "triton.nowhere:k"},
        {"constants": [[[0], {"type": "float", "hex": "nonsense"}]]},
        {"constants": [[[0], {"type": "torch_dtype", "name": "load"}]]},
        {"constants": [[[0], {"type": "triton_dtype", "name": "load"}]]},
        {"constants": [[[0], {"type": "function", "name": "os:system"}]]},
    ],
    ids=str,
)  # fmt: skip
def test_what_names_no_kernel_and_no_value_is_refused(changes):
    with pytest.raises(NotSerializable):
        kernel_description.load(GOOD | changes, "submission")
