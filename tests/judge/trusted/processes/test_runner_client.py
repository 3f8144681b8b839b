"""What a runner replies is not believed: a malformed reply of any kind is a protocol violation."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.op_trace import MAX_JSON, OpTrace, Row
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.shared_tensors import MAX_DEPTH, MAX_NODES, HostArea
from drkernel.judge.trusted.processes import replies
from drkernel.judge.trusted.processes.failures import Failed, Missing
from drkernel.judge.trusted.processes.runner_client import MAX_ROWS, RunnerClient, traces_of

CASE = SimpleNamespace(inputs=[torch.ones(4)], plan=SimpleNamespace(model=0, train=False), seed=0, large=False)
REFERENCE_MODEL = SimpleNamespace(
    reference=SimpleNamespace(init_args=lambda: ([], {})),
    seed=0,
    perturbed_at_construction=False,
    construction={},
    perturbed_weights={"w": torch.ones(4)},
)
SLOT = [256, "float32", [4], [1]]
TRACE = OpTrace([Row("k", "k:1", True, calls=1)]).to_json()
OUTPUT = {"slot": SLOT, "expanded": False, "shares": False}
CALL = {"outputs": {"tensor": 0}, "tensors": [OUTPUT], "trace": TRACE, "seen": [SLOT]}
ERROR = {"type": "ValueError", "message": "no", "line": 3, "missing": []}


class Replying:
    """A process that answers every request with the same reply."""

    handshake = None

    def __init__(self, reply: Any):
        self.inputs, self.outputs = HostArea.create("inputs", 2**16), HostArea.create("outputs", 2**16)
        self.reply = reply

    def send_request(self, body: dict, deadline: float) -> None:
        pass

    def receive_reply(self, deadline: float) -> dict:
        return self.reply


@pytest.mark.parametrize(("precision", "tf32"), [("ieee", False), ("tf32", True), ("low", True)])
def test_a_runner_is_told_whether_pytorch_may_use_tf32(precision, tf32):
    process, sent = Replying({}), []
    process.send_request = lambda body, deadline: sent.append(body)
    RunnerClient(process, timeout_s=5.0).load("source", "ModelNew", precision)
    assert sent[0]["tf32"] is tf32


REQUESTS: dict[str, Callable[[RunnerClient], Any]] = {
    "load": lambda client: client.load("", "ModelNew"),
    "build": lambda client: client.build(0, REFERENCE_MODEL),
    "weights": lambda client: client.write(0, {"w": torch.ones(4)}),
    "call": lambda client: client.call(CASE),
    "profile": lambda client: client.profile(CASE, 0.0),
    "joins": lambda client: client.joins(CASE),
    "enqueue_gated": lambda client: traces_of(client.collect(), 1),
}
GOOD: dict[str, dict[str, Any]] = {
    "load": {},
    "build": {"weights": [["w", SLOT]]},
    "weights": {},
    "call": CALL,
    "profile": {"rows": [["k", True, 1, (2.5).hex()]]},
    "joins": {"joined": True},
    "enqueue_gated": {"traces": [TRACE]},
}


def ask(name: str, reply: Any) -> Any:
    return REQUESTS[name](RunnerClient(Replying(reply), timeout_s=5.0))


def nested(depth: int) -> Any:
    return {"list": [nested(depth - 1)]} if depth else 1


BAD_SLOTS = [
    None,
    "slot",
    SLOT[:3],
    [*SLOT, 0],
    [-4, *SLOT[1:]],
    [2**16, *SLOT[1:]],
    [2, *SLOT[1:]],
    [256.0, *SLOT[1:]],
    [True, *SLOT[1:]],
    [256, "object", [4], [1]],
    [256, "float32", [4], [-1]],
    [256, "float32", [4], [1, 1]],
    [256, "float32", [2**40], [1]],
    [256, "float32", [1] * 17, [1] * 17],
]
BAD_VALUES = [
    {},
    {"tensor": 1},
    {"tensor": True},
    {"tensor": 0, "list": []},
    {"set": []},
    {"list": 1},
    {"dict": [["a"]]},
    {"dict": [[1, 2]]},
    {"float": "1.5 or so"},
    {"float": "0x1p99999"},
    {"float": "1" * 41},
    {"int": "1e3"},
    {"int": "1" * 400},
    {"dtype": "object"},
    1.5,
    [1],
    nested(MAX_DEPTH + 1),
    {"list": [1] * MAX_NODES},
]
BAD_TRACES = [
    "",
    "{}",
    "[[]]",
    "[1]",
    "[[1, 2]]",
    TRACE.replace("true", "1"),
    TRACE.replace('"k"', '""'),
    TRACE.replace(",1,", ",-1,", 1),
    TRACE.replace(",1,", ",NaN,", 1),
    TRACE.replace(",1,", ",9223372036854775808,", 1),
    TRACE.replace("fp32", "fp8"),
    "[" + ",".join([TRACE[1:-1]] * (MAX_ROWS + 1)) + "]",
    "[" * 100_000,
    " " * (MAX_JSON + 1),
]
BAD: list[tuple[str, Any]] = [
    ("load", {"loaded": True}),
    ("weights", {"weights": []}),
    ("build", {}),
    ("build", {"weights": None}),
    ("build", {"weights": [["w"]]}),
    ("build", {"weights": [[1, SLOT]]}),
    ("build", {"weights": [["w", SLOT, 0]]}),
    ("build", {"weights": [["w", SLOT]] * (replies.MAX_ITEMS + 1)}),
    *(("build", {"weights": [["w", slot]]}) for slot in BAD_SLOTS),
    *(("call", {key: value for key, value in CALL.items() if key != left}) for left in CALL),
    ("call", CALL | {"more": 1}),
    ("call", CALL | {"tensors": OUTPUT}),
    ("call", CALL | {"tensors": [OUTPUT] * (replies.MAX_ITEMS + 1)}),
    ("call", CALL | {"seen": [SLOT] * (replies.MAX_ITEMS + 1)}),
    ("call", CALL | {"trace": None}),
    *(("call", CALL | {"tensors": [OUTPUT | {key: value}]}) for key in ("expanded", "shares") for value in (1, None)),
    ("call", CALL | {"tensors": [{"slot": SLOT}]}),
    *(("call", CALL | {"tensors": [OUTPUT | {"slot": slot}]}) for slot in BAD_SLOTS),
    *(("call", CALL | {"seen": [slot]}) for slot in BAD_SLOTS),
    *(("call", CALL | {"outputs": value}) for value in BAD_VALUES),
    *(("call", CALL | {"trace": text}) for text in BAD_TRACES),
    ("profile", {}),
    ("profile", {"rows": [["k", True, 1]]}),
    ("profile", {"rows": [[1, True, 1, (2.5).hex()]]}),
    ("profile", {"rows": [["k", 1, 1, (2.5).hex()]]}),
    ("profile", {"rows": [["k", True, 1.5, (2.5).hex()]]}),
    ("profile", {"rows": [["k", True, True, (2.5).hex()]]}),
    *(("profile", {"rows": [["k", True, 1, us]]}) for us in (2.5, "-0x1p0", "nan", "inf", "0x1p30", "0x1p9999", "us")),
    ("profile", {"rows": [["k", True, 1, (2.5).hex()]] * (replies.MAX_ITEMS + 1)}),
    ("joins", {}),
    ("joins", {"joined": 1}),
    ("joins", {"joined": None}),
    ("enqueue_gated", {}),
    ("enqueue_gated", {"traces": []}),
    ("enqueue_gated", {"traces": [TRACE, TRACE]}),
    ("enqueue_gated", {"traces": [None]}),
    ("enqueue_gated", {"traces": {"0": TRACE}}),
    *(("enqueue_gated", {"traces": [text]}) for text in BAD_TRACES),
]
BAD_ERRORS = [
    "ValueError",
    [ERROR],
    {"type": "ValueError"},
    {"message": "no"},
    ERROR | {"type": 1},
    ERROR | {"message": None},
    ERROR | {"line": "3"},
    ERROR | {"line": 0},
    ERROR | {"line": True},
    ERROR | {"line": 10**6},
    ERROR | {"missing": {}},
    ERROR | {"missing": [1]},
    ERROR | {"cause": "me"},
]


@pytest.mark.parametrize("name", REQUESTS)
def test_a_well_formed_reply_is_taken(name):
    ask(name, GOOD[name])


@pytest.mark.parametrize(("name", "reply"), BAD, ids=[f"{name}-{i}" for i, (name, _) in enumerate(BAD)])
def test_a_malformed_reply_is_a_violation(name, reply):
    with pytest.raises(ProtocolViolation):
        ask(name, reply)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("error", BAD_ERRORS, ids=range(len(BAD_ERRORS)))
def test_a_malformed_error_is_a_violation(name, error):
    with pytest.raises(ProtocolViolation):
        ask(name, {"error": error})


@pytest.mark.parametrize("name", REQUESTS)
def test_an_error_is_told_with_its_line_and_without_control_characters(name):
    with pytest.raises(Failed) as caught:
        ask(name, {"error": ERROR | {"message": "a\x1b[2Jb\n" + "c" * 5000}})
    assert (caught.value.kind, caught.value.line) == ("ValueError", 3)
    assert caught.value.message.isprintable() and len(caught.value.message) == 2000
    with pytest.raises(Failed) as caught:
        ask(name, {"error": ERROR | {"type": "<script>"}})
    assert caught.value.kind == "Error"


def test_kernels_that_were_not_compiled_are_told_from_errors():
    with pytest.raises(Missing) as caught:
        ask("call", {"error": ERROR | {"missing": [{"kernel": "k"}]}})
    assert caught.value.kernels == [{"kernel": "k"}]


@pytest.mark.parametrize(
    "error", [ValueError("x"), SyntaxError("x"), type("E", (SyntaxError,), {"lineno": "nowhere"})("x")]
)
def test_what_a_runner_says_of_any_error_is_well_formed(error):
    from drkernel.judge.untrusted.runner import describe

    assert parse(describe(error), replies.Error).type == type(error).__name__
