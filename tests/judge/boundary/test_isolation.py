"""The border between the judge and a runner: frames, shared memory, and what a locked-in process can still do."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import pytest
import torch

from drkernel.judge.boundary import framing, shared_tensors
from drkernel.judge.boundary.shared_tensors import HostArea, NotSerializable, Slot
from drkernel.types import Task

HEADER = struct.Struct("<4sIQ16s")


def _ask(answer):
    """What a question leads to when the other side answers with `answer(sequence, nonce, body)` as bytes."""
    ours, theirs = socket.socketpair()

    def other() -> None:
        data = answer(*framing.receive(theirs))
        if data is None:
            theirs.close()
        else:
            theirs.sendall(data)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        return framing.Requester(ours).request({"do": "something"}, time.monotonic() + 2)
    finally:
        thread.join()


def _frame(sequence, nonce, body=b'{"x": 1}', magic=b"DRK1", length=None):
    return HEADER.pack(magic, len(body) if length is None else length, sequence, nonce) + body


def test_an_answer_with_its_questions_number_and_nonce_is_heard():
    assert _ask(lambda s, n, b: _frame(s, n)) == {"x": 1}


@pytest.mark.parametrize(
    "answer",
    [
        lambda s, n, b: _frame(s + 1, n),
        lambda s, n, b: _frame(s, bytes(16)),
        lambda s, n, b: _frame(s, n, magic=b"EVIL"),
        lambda s, n, b: _frame(s, n, length=2**31),
        lambda s, n, b: _frame(s, n, body=b"[1]"),
        lambda s, n, b: _frame(s, n, body=b'{"x": NaN}'),
        lambda s, n, b: _frame(s, n, body=b"\xff\xfe"),
        lambda s, n, b: _frame(s, n, body=b"[" * 100_000),
        lambda s, n, b: b"\x80\x04" + b"cos\nsystem\n" * 10,
    ],
)
def test_any_other_answer_is_a_violation(answer):
    with pytest.raises(framing.ProtocolViolation):
        _ask(answer)


def test_silence_and_leaving_are_told_apart():
    with pytest.raises(framing.PeerClosed):
        _ask(lambda s, n, b: None)
    ours, theirs = socket.socketpair()
    with pytest.raises(framing.DeadlineExceeded):
        framing.Requester(ours).request({}, time.monotonic() + 0.05)
    theirs.close()


def test_an_answer_before_its_question_is_a_violation():
    ours, theirs = socket.socketpair()
    theirs.sendall(_frame(1, bytes(16)))
    with pytest.raises(framing.ProtocolViolation):
        framing.Requester(ours).request({}, time.monotonic() + 1)


@pytest.mark.parametrize("sent_at_first", [1, 32, 40])
def test_a_reply_that_a_deadline_cuts_off_is_whole_when_it_is_asked_for_again(sent_at_first):
    """On a busy machine a deadline may pass between two packets. What was read then must not be lost."""
    ours, theirs = socket.socketpair()
    requester = framing.Requester(ours)
    requester.send_request({"do": "something"}, time.monotonic() + 2)
    sequence, nonce, _ = framing.receive(theirs)
    framing.send(theirs, sequence, nonce, {"done": "x" * 100})
    frame = ours.recv(2**16)
    theirs.sendall(frame[:sent_at_first])
    with pytest.raises(framing.DeadlineExceeded):
        requester.receive_reply(time.monotonic() + 0.05)
    theirs.sendall(frame[sent_at_first:])
    assert requester.receive_reply(time.monotonic() + 2) == {"done": "x" * 100}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 5),
        torch.randn(5, 3).t(),
        torch.randn(2, 3, 4).to(torch.bfloat16),
        torch.arange(7),
        torch.rand(4) > 0.5,
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(4, 1).expand(4, 3),
        torch.randn(6, 6)[::2, 1::3],
    ],
    ids=lambda t: f"{t.dtype}{tuple(t.shape)}",
)
def test_tensors_cross_with_their_values(tensor):
    area = HostArea.create("test", 2**16)
    slot = Slot.parse(area.put(tensor).to_json(), area.size)
    assert torch.equal(area.view(slot), tensor)
    if 0 not in tensor.stride():
        assert area.view(slot).stride() == tensor.stride()
    before = area.snapshot()
    assert area.same(before)
    if tensor.numel():
        area.view(slot).reshape(-1)[:1].copy_(torch.ones(1)) if slot.extent == tensor.numel() else area.view(
            slot
        ).zero_()
        area.view(slot).fill_(1)
        assert not area.same(before) or bool((tensor == 1).all())


@pytest.mark.parametrize(
    "slot",
    [
        [0, "float32", [2**40], [1]],
        [2**16, "float32", [1], [1]],
        [-4, "float32", [1], [1]],
        [0, "float32", [2, 2], [1]],
        [0, "float32", [2], [-1]],
        [0, "float32", [1.0], [1]],
        [0, "object", [1], [1]],
        [0, ["float32"], [1], [1]],
        [2, "float32", [1], [1]],
        "slot",
        None,
    ],
)
def test_a_slot_outside_the_memory_is_refused(slot):
    with pytest.raises(NotSerializable):
        Slot.parse(slot, 2**16)


def test_values_survive_the_journey():
    value = [1, -2.5, float("inf"), None, True, "text", torch.float16, (1, [2, {"a": 3}]), 2**70]
    assert shared_tensors.decode(shared_tensors.encode(value, lambda t: 0), lambda i: i) == value


def test_objects_and_tensor_subclasses_do_not_cross():
    class Mine(torch.Tensor):
        pass

    for value in (object(), torch.rand(2).as_subclass(Mine), {1: 2}, lambda: 0):
        with pytest.raises(NotSerializable):
            shared_tensors.encode(value, lambda t: 0)


ESCAPE = """
import ctypes, os, signal, socket, subprocess, sys, threading
import torch
import torch.nn as nn
import triton
import triton.language as tl

REPORT = {}

def attempt(name, action):
    try:
        action()
        REPORT[name] = "succeeded"
    except BaseException as error:
        REPORT[name] = type(error).__name__

libc = ctypes.CDLL(None, use_errno=True)

def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "syscall")

parent = os.getppid()
attempt("fork", os.fork)
attempt("execve", lambda: os.execv("/bin/true", ["true"]))
attempt("spawn", lambda: subprocess.run(["/bin/true"]))
attempt("kill parent", lambda: os.kill(parent, 0))
attempt("kill group", lambda: os.killpg(0, 0))
attempt("pidfd", lambda: os.pidfd_open(parent))
attempt("ptrace", lambda: call(101 if os.uname().machine == "x86_64" else 117, 16, parent, 0, 0))
attempt("socket", lambda: socket.socket())
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("write tmp", lambda: open("/tmp/drkernel_escape", "w"))
attempt("write shm", lambda: open("/dev/shm/drkernel_escape", "w"))
attempt("make folder", lambda: os.mkdir("/tmp/drkernel_escape_folder"))
attempt("memfd", lambda: os.memfd_create("more"))
attempt("read task", lambda: open(TASK).read())
attempt("read repository", lambda: open(REPOSITORY).read())
attempt("list home", lambda: os.listdir(os.path.expanduser("~root")))
attempt("read parent", lambda: open(f"/proc/{parent}/environ").read())
attempt("parent memory", lambda: open(f"/proc/{parent}/mem", "rb"))
attempt("chmod", lambda: os.chmod("/tmp", 0o777))
attempt("limits of parent", lambda: __import__("resource").prlimit(parent, 0, (1, 1)))
attempt("mount", lambda: call(165 if os.uname().machine == "x86_64" else 40, 0, b"/tmp", 0, 0, 0))
attempt("environment secrets", lambda: os.environ["DRKERNEL_TEST_TOKEN"])
attempt("more descriptors", lambda: [os.fstat(n) for n in range(4, 64)])
thread = threading.Thread(target=lambda: REPORT.setdefault("thread", "ran"))
thread.start()
thread.join()
thread_ran = REPORT.pop("thread", "") == "ran"
escaped = [name for name, outcome in REPORT.items() if outcome == "succeeded"]
raise RuntimeError(f"{len(REPORT)} attempts, escaped {escaped}, thread {thread_ran}")
"""


@pytest.mark.slow
@pytest.mark.xdist_group("workers by command")
def test_a_runner_can_compute_and_nothing_else(judge_by_command, tasks, tmp_path):
    task = tmp_path / "task.py"
    task.write_text("secret")
    source = ESCAPE.replace("TASK", repr(str(task))).replace("REPOSITORY", repr(framing.__file__))
    verdict = judge_by_command.judge(tasks["relu"], source)
    assert verdict.reason == "runtime_error", verdict
    assert "23 attempts, escaped [], thread True" in verdict.detail, verdict.detail
    assert not os.path.exists("/tmp/drkernel_escape")


def test_no_variable_of_the_trainers_environment_reaches_a_worker(monkeypatch):
    from drkernel.judge.trusted.processes.worker_process import base_environment

    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert "secret" not in base_environment().values()


@pytest.mark.slow
def test_the_same_inputs_at_the_same_place_are_the_same_object_and_fresh_memory_is_poisoned(ungated, tasks):
    source = """
import torch, triton, triton.language as tl
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
    def forward(self, x):
        self.seen.append(x)
        assert bool(torch.empty(100).isnan().all())
        if len(self.seen) == 2:
            raise RuntimeError(f"same {self.seen[0] is x}")
        return torch.relu(x)
@triton.jit
def k(x):
    pass
"""
    task = Task("relu", tasks["relu"].source)
    verdict = ungated.judge(task, source.replace("return torch.relu(x)", "k[(1,)](x)\n        return torch.relu(x)"))
    assert "same True" in verdict.detail
