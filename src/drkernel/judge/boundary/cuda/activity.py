"""Activity records: what the GPU executed for a runner, as its driver reports it, and not as Python code does.

Native code in the runner (activity.c), which is there before the submission, gets them from CUPTI and writes them to
memory that the examiner reads. So it does not matter by which route work reached the GPU. Coverage, refusals and the
floor of a time rest on them. Code that writes to arbitrary addresses of its process can forge them.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton.runtime import build

from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.types import DrKernelError

LIBRARY = "activity.so"
"""In the folder of every runner."""
_RECORD = struct.Struct("=10I2Q128s")
_COUNT, _FIRST, CAPACITY = 2048, 4096, 2**16
"""Where the number of records lies, and where they begin, in bytes; how many there is room for."""
_KERNEL, _LONGEST_NAME = 10, 127
_OF_LIBRARIES = re.compile(r"_Z|sm\d|cutlass|cudnn|cublas|nvjet|(kepler|maxwell|volta|turing|ampere|hopper|blackwell)_")


@dataclass(frozen=True)
class DeviceWork:
    """One kernel, copy or fill that the GPU executed."""

    kernel: str
    """Its name; empty for a copy or a fill."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    """Bytes of shared memory."""
    registers: int
    """Of a thread."""
    start: int
    end: int
    """In nanoseconds."""

    @property
    def us(self) -> float:
        return (self.end - self.start) / 1e3

    @property
    def program(self) -> tuple:
        """What tells one compiled kernel from another, as far as the driver reports it."""
        return self.kernel, self.block, self.shared, self.registers


def together_us(work: Sequence[DeviceWork], kernels: Collection[str], other: str) -> float:
    """For how many microseconds kernels with these names ran while the other one did.

    Args:
        work: in the order in which it began.
    """
    together, until, spans = 0, 0, []
    for one in work:
        if one.kernel == other:
            spans.append((max(one.start, until), one.end))
            until = max(until, one.end)
    for one in work:
        if one.kernel in kernels and one.kernel != other:
            together += sum(max(0, min(one.end, end) - max(one.start, start)) for start, end in spans)
    return together / 1e3


def compile_library(folder: Path) -> None:
    """Compiles activity.c into a folder.

    Raises:
        DrKernelError: there is no C compiler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / LIBRARY).exists():
        return
    source = Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory(dir=folder) as private:
        try:
            built = build._build("activity", str(source), private, [], [], ["dl"], [])
        except (RuntimeError, OSError) as error:
            raise DrKernelError(f"judge: device 'cuda' needs a C compiler to build {source.name}: {error}") from error
        os.replace(built, folder / LIBRARY)


class Recording:
    """A runner's side.

    Raises:
        DrKernelError: CUPTI is missing, or refuses.
    """

    def __init__(self, library: Path, area: HostArea):
        self._library, self._area = ctypes.CDLL(str(library)), area
        start = ctypes.addressof(ctypes.c_char.from_buffer(area.memory))
        arguments = ctypes.c_void_p(start + _COUNT), ctypes.c_void_p(start + _FIRST), ctypes.c_uint64(CAPACITY)
        if status := self._library.begin(*arguments):
            reason = "libcupti is missing; it comes with torch for CUDA" if status < 0 else f"CUPTI's error {status}"
            raise DrKernelError(f"judge: what a GPU executes cannot be recorded: {reason}")

    def flush(self) -> None:
        """Hands over what the device has finished."""
        self._library.flush()


class ActivityReader:
    """The examiner's side."""

    def __init__(self, area: HostArea):
        self._area, self._seen = area, 0
        self.own: frozenset[str] = frozenset()
        """The names of the submission's compiled kernels, as far as records keep names."""

    def set_own(self, names: Iterable[str]) -> None:
        """Says which kernels are the submission's. A name like those of libraries is nobody's."""
        self.own = frozenset(name[:_LONGEST_NAME] for name in names if not _OF_LIBRARIES.match(name))

    def split_us(self, work: Iterable[DeviceWork]) -> tuple[float, float, float]:
        """Microseconds in the submission's kernels, in other kernels, and in copies and fills."""
        own = other = moved = 0.0
        for one in work:
            if one.kernel in self.own:
                own += one.us
            elif one.kernel:
                other += one.us
            else:
                moved += one.us
        return own, other, moved

    def busy_with_others_us(self, work: Iterable[DeviceWork]) -> float:
        """Microseconds in which the device executed at least one kernel that is not the submission's.

        Args:
            work: in the order in which it began.
        """
        busy = until = 0
        for one in work:
            if one.kernel and one.kernel not in self.own:
                busy += max(0, one.end - max(one.start, until))
                until = max(until, one.end)
        return busy / 1e3

    def new(self) -> list[DeviceWork]:
        """The records since the last call, in the order in which they began.

        Raises:
            ProtocolViolation: there are more than there is room for, or they are not well formed.
        """
        (count,) = struct.unpack_from("=Q", self._area.memory, _COUNT)
        first, self._seen = self._seen, count
        if not 0 <= count - first <= CAPACITY:
            raise ProtocolViolation(f"{count - first} records of device activity, at most {CAPACITY} expected")
        found = (self._record(number % CAPACITY) for number in range(first, count))
        return sorted(found, key=lambda work: work.start)

    def skip(self) -> None:
        """Passes over the records since the last call."""
        (self._seen,) = struct.unpack_from("=Q", self._area.memory, _COUNT)

    def _record(self, place: int) -> DeviceWork:
        values = _RECORD.unpack_from(self._area.memory, _FIRST + place * _RECORD.size)
        kind, *sizes, shared, registers, _, start, end, name = values
        if not start <= end < start + 10**12:
            raise ProtocolViolation("a record of device activity with an impossible time")
        text = name.split(b"\0")[0].decode(errors="replace") if kind == _KERNEL else ""
        return DeviceWork(text, tuple(sizes[3:]), tuple(sizes[:3]), shared, registers, start, end)
