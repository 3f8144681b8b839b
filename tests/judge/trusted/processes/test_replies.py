"""What a worker sends: no submission can make a reply that is too long, and one that cannot be sent is sent in part."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from drkernel.judge.boundary import framing
from drkernel.judge.boundary.parsing import parse
from drkernel.judge.boundary.shared_tensors import NotSerializable, Slot, decode
from drkernel.judge.trusted.processes import replies
from drkernel.judge.trusted.processes.worker import send_reply
from drkernel.judge.trusted.processes.worker_process import Worker
from drkernel.judge.trusted.verdicts import as_reply
from drkernel.types import KernelTime, Verdict

WIDEST = "\U0001f600"
LONG = [WIDEST * 200] * 2000
"""Names as long, and as many, as a trace may have."""


def sent(reply: dict) -> dict:
    """What arrives of a worker's reply."""
    ours, theirs = socket.socketpair()
    requester = framing.Requester(ours)
    requester.send_request({}, time.monotonic() + 5)
    sequence, nonce, _ = framing.receive(theirs)
    sender = threading.Thread(target=send_reply, args=(theirs, sequence, nonce, reply))
    sender.start()
    try:
        return requester.receive_reply(time.monotonic() + 5)
    finally:
        theirs.close()
        sender.join()


@pytest.mark.parametrize("character", ["a", "\x00", "\u20ac", WIDEST, "\ud800"])
def test_a_source_of_any_characters_fits_a_request(character):
    source = character * (framing.MAX_SOURCE + 1)
    assert len(json.dumps(source)) <= framing.MAX_BODY - 2**20 + 2


def test_a_verdict_with_all_that_a_trace_may_name_can_be_sent():
    evidence = {"kernels": LONG, "operators": LONG, "drkernel": {"detail": ", ".join(LONG), "useless": LONG}}
    rows = tuple(KernelTime(WIDEST * 200, 1, 1.0, True) for _ in range(16))
    found = Verdict("hack", "launch_without_effect", ", ".join(LONG), evidence=evidence, profile=rows)
    verdict = Verdict.from_dict(sent(as_reply(found))["verdict"])
    assert (verdict.status, verdict.reason, len(verdict.detail)) == ("hack", "launch_without_effect", 800)
    assert verdict.evidence["kernels"] == LONG[:64] and len(verdict.evidence["drkernel"]["useless"]) == 64
    assert verdict.profile == rows


def test_what_an_honest_verdict_says_is_kept_whole():
    evidence = {"timing": {"calls": [1.0] * 3000, "usual": [["own", 2.0]]}, "index": [1, 2], "line": None, "share": 0.5}
    verdict = Verdict("ok", "faster", "detail", 1.5, evidence=evidence, profile=(KernelTime("k", 1, 2.0, True),))
    assert Verdict.from_dict(sent(as_reply(verdict))["verdict"]) == verdict


@pytest.mark.parametrize("evidence", [{"us": float("inf")}, {str(key): "x" * 800 for key in range(4000)}])
def test_a_verdict_that_cannot_be_sent_is_sent_without_its_evidence(evidence):
    reply = as_reply(Verdict("incorrect", "wrong_values", "here", evidence=evidence)) | {"machine": {"gpu": 1}}
    found = sent(reply)
    assert (found["verdict"]["reason"], found["verdict"]["detail"], found["machine"]) == (
        "wrong_values", "here", {"gpu": 1},
    )  # fmt: skip
    assert "a body" in found["verdict"]["evidence"]["unsendable"]


def test_kernels_that_cannot_be_described_are_the_fault_of_who_launches_them():
    found = sent({"missing": [{"kernel": "\u20ac" * 10**6}]})
    assert (found["verdict"]["status"], found["verdict"]["reason"]) == ("invalid", "protocol_violation")


@pytest.mark.parametrize("reply", [{"\ud800": 1}, {"weights": [["w", {"\ud800": 1}]]}])
def test_a_reply_with_half_a_surrogate_pair_is_a_violation(reply):
    with pytest.raises(framing.ProtocolViolation):
        parse(reply, replies.Weights)


@pytest.mark.parametrize("read", [lambda data: Slot.parse(data, 64), lambda data: decode(data, lambda _: None)])
def test_a_value_with_half_a_surrogate_pair_is_no_value(read):
    with pytest.raises(NotSerializable):
        read({"\ud800": 1})


def test_what_is_said_of_a_task_and_cannot_be_sent_is_an_error_of_the_task():
    assert "cannot be sent" in sent({"plan": {"source": "x" * 10**7}})["error"]


def test_a_task_that_no_request_can_hold_is_refused_and_its_worker_lives():
    ours, theirs = socket.socketpair()
    worker = Worker.__new__(Worker)
    worker._requester = framing.Requester(ours)
    assert "cannot be sent" in worker.request({"task": {"source": "x" * 10**7}, "source": None}, 5.0)["error"]
    ours.close()
    assert not theirs.recv(1), "a part of it was sent"
