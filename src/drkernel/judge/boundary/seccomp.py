"""The seccomp filter of a runner process: which system calls fail, on x86-64 and on aarch64.

Everything that starts a program or a process, reaches another one, opens a connection, changes a file, or offers a
large kernel surface returns EPERM. Computing, threads, memory, reading files and the already open socket remain.
"""

from __future__ import annotations

import struct

EPERM, ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes each, low word first
_CLONE_THREAD = 0x00010000
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # O_WRONLY O_RDWR O_CREAT O_TRUNC O_APPEND __O_TMPFILE

_DENIED = {  # name: (x86-64, aarch64)
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpgid": (109, 154), "setsid": (112, 157),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "recvmsg": (47, 212), "recvmmsg": (299, 243),
    "creat": (85, None), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "unlink": (87, None), "unlinkat": (263, 35), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "mknod": (133, None), "mknodat": (259, 33), "truncate": (76, 45), "fallocate": (285, 47),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "acct": (163, 89), "personality": (135, 92),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "seccomp": (317, 277),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_setup": (206, 0), "io_submit": (209, 2), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, None), "ioperm": (173, None), "lookup_dcookie": (212, 18), "syslog": (103, 116),
}  # fmt: skip
_UNKNOWN = {
    "clone3": (435, 435),
    "openat2": (437, 437),
}  # they fail with ENOSYS, since their flags lie in memory; libc falls back to others
_CLONE, _KILL_CALL, _TGKILL = (56, 220), (62, 129), (234, 131)
_OPEN, _OPENAT = (2, None), (257, 56)
_ON_ONESELF = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}  # allowed for the own process (pid 0)
_PRCTL, _PRCTL_ALLOWED = (157, 167), (3, 15, 16, 0x53564D41)  # get dumpable, set and get name, name a mapping


def program(machine: str, arch: int, pid: int) -> bytes:
    """The BPF program (8 bytes per instruction) for a process with this pid. The last rule allows."""
    column = 0 if machine == "x86_64" else 1
    code = [(_LOAD, 0, 0, _ARCH), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, _ERRNO | ENOSYS)]
    for table, error in ((_DENIED, EPERM), (_UNKNOWN, ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                code += [(_JEQ, 0, 1, number), (_RET, 0, 0, _ERRNO | error)]
    code += _when(_CLONE[column], 0, (_JSET, 1, 0, _CLONE_THREAD))
    code += _when(_KILL_CALL[column], 0, (_JEQ, 1, 0, pid))
    code += _when(_TGKILL[column], 0, (_JEQ, 1, 0, pid))
    code += _when(_OPENAT[column], 2, (_JSET, 0, 1, _WRITING))
    if (number := _OPEN[column]) is not None:
        code += _when(number, 1, (_JSET, 0, 1, _WRITING))
    for numbers in _ON_ONESELF.values():
        code += _when(numbers[column], 0, (_JEQ, 1, 0, 0))
    code += _only(_PRCTL[column], 0, _PRCTL_ALLOWED)
    code += [(_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(number: int, argument: int, test: tuple[int, int, int, int]) -> list[tuple]:
    """For this system call: deny or allow by one test of the low word of an argument.

    `test` jumps over the denial where the call is fine, and falls into it where it is not.
    """
    return [
        (_JEQ, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENT + 8 * argument),
        test,
        (_RET, 0, 0, _ERRNO | EPERM),
        (_RET, 0, 0, _ALLOW),
    ]


def _only(number: int, argument: int, allowed: tuple[int, ...]) -> list[tuple]:
    """For this system call: allow these values of the low word of an argument, deny all others."""
    tests = [(_JEQ, len(allowed) - i, 0, value) for i, value in enumerate(allowed)]
    body = [(_LOAD, 0, 0, _ARGUMENT + 8 * argument), *tests, (_RET, 0, 0, _ERRNO | EPERM), (_RET, 0, 0, _ALLOW)]
    return [(_JEQ, 0, len(body), number), *body]
