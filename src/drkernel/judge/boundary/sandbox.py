"""What a runner process may do: compute, read the system's libraries, and answer on one socket.

There are three independent locks, because no machine has them all: resource limits, Landlock and a seccomp filter (see
judge/README.md). They are plain system calls through ctypes, without helper binaries. A lock that the kernel lacks is
omitted and named by `missing_locks()`; it is never fatal. The runner can write no file at all, so it can neither fill a
disk nor poison a cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drkernel.judge.boundary import seccomp

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_SECCOMP, _FILTER, _ALL_THREADS = {"x86_64": 317, "aarch64": 277}, 1, 1
_CAPSET = {"x86_64": 126, "aarch64": 91}
_READ = (1 << 0) | (1 << 2) | (1 << 3)  # execute (mapping libraries), read file, read directory
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_WRITE = _READ | (1 << 1) | _TRUNCATE | _IOCTL
_OF_FOLDERS = 1 << 3
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_READABLE: tuple[str, ...] = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/opt/cuda",
    "/usr/local",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
_READABLE += ("/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")
_GPU_READABLE: tuple[str, ...] = (
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/modules",
    "/proc/sys",
    "/sys",
    "/usr/local/nvidia",
)
_GPU_READABLE += ("/proc/filesystems", "/proc/version", "/proc/stat", "/etc/nvidia", "/etc/ld.so.conf.d")


@dataclass(frozen=True)
class Limits:
    """Resource limits of one runner."""

    host_memory_mib: int = 4096
    """Host memory beyond what the process maps when it is sealed."""
    cpu_s: int = 20
    """CPU seconds over all its threads."""
    files: int = 48
    """Open files; a process with a GPU may have 512 more."""


class Sandbox:
    """The locks of a process. Prepared once in the zygote; `enter()` then takes a process well under a millisecond.

    With a GPU there are two steps, because CUDA cannot be set up behind the system call filter, and the threads that it
    starts must already be confined: `confine()`, set up CUDA, `seal()`.
    """

    def __init__(self, limits: Limits, gpu: bool = False):
        self.limits, self.gpu = limits, gpu
        self.landlock_abi = _landlock_abi()
        self._ruleset = None
        if self.landlock_abi and not gpu:
            self._ruleset = _landlock_ruleset(self.landlock_abi, dict.fromkeys(_readable_paths(), _READ))
        self.seccomp = platform.machine() in _AUDIT_ARCH and Path("/proc/sys/kernel/seccomp").exists()

    def missing_locks(self) -> list[str]:
        """The locks that this kernel does not offer, in words; empty where it offers all."""
        missing = [] if self.seccomp else ["seccomp (system calls are not filtered)"]
        if not self.landlock_abi:
            missing.append("Landlock (files of this user stay readable)")
        elif self.landlock_abi < 6:
            missing.append(
                f"Landlock ABI 6 (this kernel has {self.landlock_abi}: signals are stopped by seccomp alone)"
            )
        return missing

    def enter(self) -> None:
        """Locks the calling process in. Irreversible. The process must be single-threaded."""
        self._bound()
        self.confine()
        self._filter()

    def confine(self, readable: Path | None = None, devices: Iterable[Path] = ()) -> None:
        """Takes away files, capabilities and rights over other processes. The process must be single-threaded.

        Args:
            readable: one more folder that may be read.
            devices: files through which a GPU is reached.
        """
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        ruleset = self._ruleset
        if self.landlock_abi and ruleset is None:
            ruleset = _landlock_ruleset(self.landlock_abi, _gpu_paths(readable, devices))
        if ruleset is not None and _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0):
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
        _drop_capabilities()
        _prctl(PR_SET_DUMPABLE, 0)

    def seal(self) -> None:
        """Bounds what the process may use from here on, and filters its system calls, those of all its threads."""
        self._bound()
        self._filter()

    def _bound(self) -> None:
        _limit(self.limits, self.gpu, threads_only=self.seccomp)

    def _filter(self) -> None:
        if self.seccomp:
            _install_filter(os.getpid())


def hide_process() -> None:
    """Keeps other processes of this user from reading this one's memory."""
    _prctl(PR_SET_DUMPABLE, 0)


def go_first() -> None:
    """Where the machine runs out of memory, the kernel ends this process and its children before all others, and of
    these the largest: a submission that takes too much, and no examiner."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def oom_kills() -> int:
    """How many processes the kernel has ended on this machine because memory ran out."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def adopt_orphans() -> None:
    """Makes the caller the parent of every descendant whose own parent has died."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _limit(limits: Limits, gpu: bool, threads_only: bool) -> None:
    """With a GPU, data are bounded instead of the address space, of which CUDA reserves more than there is memory."""
    sizes = Path("/proc/self/statm").read_text().split()
    memory, mapped = (resource.RLIMIT_DATA, sizes[5]) if gpu else (resource.RLIMIT_AS, sizes[0])
    bounds = {
        memory: int(mapped) * resource.getpagesize() + limits.host_memory_mib * 2**20,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: limits.files + (512 if gpu else 0),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not threads_only:  # counts all processes of the user, so it is only set where nothing else stops a fork
        bounds[resource.RLIMIT_NPROC] = sum(p.name.isdigit() for p in Path("/proc").iterdir()) + 64
    for name, bound in bounds.items():
        hard = resource.getrlimit(name)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(name, (bound, bound))


def _drop_capabilities() -> None:
    """As root: gives up every capability, so that root's files are all that is left of it."""
    if os.geteuid() == 0:
        for capability in range(64):
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)
    if (number := _CAPSET.get(platform.machine())) and _libc.syscall(number, header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def _landlock_abi() -> int:
    return max(0, _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _landlock_ruleset(abi: int, paths: Mapping[Path, int]) -> int:
    """A ruleset that allows these accesses beneath these paths, and nothing else that this ABI can restrict."""
    files = (1 << 13) - 1
    files |= (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= 3 else 0) | (1 << 15 if abi >= 5 else 0)
    attributes = struct.pack("=QQQ", files, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    attributes = attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for path, access in paths.items():
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", access & files & ~(0 if path.is_dir() else _OF_FOLDERS), handle)
        if _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0):
            raise OSError(ctypes.get_errno(), f"landlock_add_rule({path})")
        os.close(handle)
    return ruleset


def _gpu_paths(readable: Path | None, devices: Iterable[Path]) -> dict[Path, int]:
    """What CUDA needs besides: its devices, what the kernel says of them, and this process's own folder in /proc."""
    paths = dict.fromkeys(_readable_paths(), _READ)
    paths |= {Path(path): _READ for path in _GPU_READABLE if os.path.exists(path)}
    paths |= dict.fromkeys(devices, _WRITE)
    paths[Path(f"/proc/{os.getpid()}")] = _WRITE & ~_IOCTL
    return paths | ({readable: _READ} if readable else {})


def _readable_paths() -> list[Path]:
    """The system's and Python's library folders; never the repository, the tasks or a home folder."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    python: list[str | None] = [sysconfig.get_path(name) for name in names]
    python += [p for p in sys.path if p.endswith("site-packages")]
    python += [str(Path(str(sys.modules[name].__file__)).parents[1]) for name in ("torch", "triton")]
    python += [os.path.join(sys.base_prefix, "lib")]
    return sorted({Path(p).resolve() for p in (*_READABLE, *python) if p and os.path.exists(p)})


def _install_filter(pid: int) -> None:
    program = seccomp.program(platform.machine(), _AUDIT_ARCH[platform.machine()], pid)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(header, len(header))
    number = _SECCOMP[platform.machine()]
    if _libc.syscall(number, _FILTER, _ALL_THREADS, ctypes.c_void_p(ctypes.addressof(holder))):
        raise OSError(ctypes.get_errno(), "seccomp")
