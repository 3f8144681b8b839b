"""What server and client of a Judge say to each other, as typed structs: what does not fit is refused whole.

Bodies are JSON. Nothing in them is unpickled or executed by the process that reads them.
"""

from __future__ import annotations

import hashlib
import json
import threading
from importlib import metadata
from typing import Annotated, Any

import msgspec
import torch

from drkernel.judge.boundary.framing import MAX_BODY, ProtocolViolation
from drkernel.judge.boundary.parsing import T, parse
from drkernel.judge.options import JudgeOptions, device_name
from drkernel.judge.service import OF_EXAMINATIONS
from drkernel.tasks.loaders.kernelbench import parse_task
from drkernel.tasks.precision import may_have_16_bits
from drkernel.types import DrKernelError, Precision, Task, Verdict

MAX_REQUEST = 2 * MAX_BODY
"""Bytes of a request's body: any submission fits, and a task of as much."""
FEEDBACK_TOKENS = 1024
"""Most tokens of the feedback, where a request does not say."""
_PARSING = threading.Lock()
"""Python 3.11 cannot parse in several threads."""


class TaskFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a `types.Task` that a verdict depends on."""

    source: str
    id: str = "task"
    entry_point: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z")] = "Model"
    precision: Precision | None = None
    """None: `ieee`, where the source names no type of 16 bits."""
    small: dict[str, int] | None = None

    def task(self) -> Task:
        """Raises DrKernelError where the precision must be said, since to find it out would be to run the source."""
        if self.precision is None and may_have_16_bits(self.source):
            raise DrKernelError(
                "task.precision: found none, and the source names a type of 16 bits; expected ieee, tf32 or low"
            )
        return Task(self.id, self.source, self.entry_point, small=self.small, precision=self.precision or "ieee")


class CheckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /check."""

    task: str | TaskFields
    """Its fields, or the text of a task file, where `SMALL` may be."""

    def read_task(self) -> Task:
        """Raises DrKernelError where the text is no task."""
        if isinstance(self.task, TaskFields):
            return self.task.task()
        with _PARSING:
            read = parse_task(self.task, "task")
        return TaskFields(read.source, small=read.small).task()


class JudgeRequest(CheckRequest, forbid_unknown_fields=True):
    """The body of POST /judge."""

    submission: str
    feedback_tokens: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = FEEDBACK_TOKENS
    """Most tokens of the feedback, estimated (`feedback.estimated_tokens`)."""


class Judged(msgspec.Struct):
    """The reply to POST /judge."""

    verdict: Verdict
    feedback: str
    identity: str
    """`About.identity` of the server."""


class Checked(msgspec.Struct):
    """The reply to POST /check."""

    usable: bool
    why: str
    """Why the task is not usable, or, where the judge marks such tasks, which trivial outputs would pass."""
    identity: str


class Failed(msgspec.Struct):
    """The reply with any status but 200."""

    error: str


class About(msgspec.Struct, frozen=True):
    """What a server's verdicts depend on, but for its secret."""

    device: str
    """As verdicts name it: `simulated:H200`, `cuda:NVIDIA H200`."""
    options: dict[str, Any]
    """Those of `JudgeOptions` that examinations have."""
    drkernel: str
    torch: str
    triton: str

    @classmethod
    def of(cls, options: JudgeOptions) -> About:
        """Raises DrKernelError where the options ask for a GPU that is not visible."""
        placed = options.placed()
        decides = {name: getattr(placed, name) for name in (*OF_EXAMINATIONS, "host_memory_mib", "share")}
        decides |= {"screen": placed.device == "cuda" and placed.screens, "baselines": placed.baselines is not None}
        device = device_name(placed.device, placed.gpu, placed.gpus)
        return cls(device, decides, installed("drkernel"), str(torch.__version__), installed("triton"))

    def facts(self) -> dict[str, Any]:
        """All of it by name: what two servers of one run must agree on."""
        return {"device": self.device, **self.options, **{name: getattr(self, name) for name in _VERSIONS}}

    @property
    def identity(self) -> str:
        """16 hex digits over all of it."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()[:16]


class Health(msgspec.Struct):
    """The reply to GET /health."""

    about: About
    identity: str
    workers: int
    pending: int
    """Submissions and tasks under way."""


_VERSIONS = ("drkernel", "torch", "triton")
NOT_INSTALLED = "not installed"


def installed(package: str) -> str:
    """The version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a clone that is on the path, and not installed
        return NOT_INSTALLED


def decoded(body: bytes, kind: type[T]) -> T:
    """A body as a value of this type.

    Raises:
        ProtocolViolation: it is not JSON, or does not fit; names the place, what was found and what was expected.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"found no JSON ({error}), expected an object") from error
    return parse(data, kind)


def encoded(value: msgspec.Struct) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()


def task_fields(task: Task) -> TaskFields:
    """What a client sends of a task."""
    return TaskFields(task.source, task.id, task.entry_point, task.precision, task.small)
