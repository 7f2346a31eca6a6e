"""System calls that a worker has no use for and that lead out of its limits (seccomp(2)).

Namespaces and limits leave gaps: memory in files without a name is counted by nobody, a namespace
of users of one's own brings file systems of any size, keys in the kernel outlive the worker, and a
socket of some families (to the host of a virtual machine, say) knows no network namespace. Each of
these calls answers "not permitted", and whoever asks goes on without.
"""

import ctypes
import errno
import platform
import struct

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
# On x86_64, and on the machines that use the kernel's common table; from 424 on there is only one.
DENIED = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount": (165, 40),
    "umount2": (166, 39),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "memfd_secret": (447, 447),
}
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
FAMILIES = (1, 2, 10)  # unix, and the internet: of the network namespace, where there is one
X32 = 0x40000000  # calls with this bit are of another table on x86_64
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def install() -> None:
    """From now on this process and its children are refused these calls.

    Needs PR_SET_NO_NEW_PRIVS. Errors: OSError where the kernel has no filters.
    """
    steps = b"".join(_steps(platform.machine()))
    program = _Program(len(steps) // 8, steps)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl: no filter of system calls")


def _steps(machine: str) -> list[bytes]:
    """The filter as a program of the kernel's packet language (BPF)."""
    column = 0 if machine == "x86_64" else 1
    steps = [_step(LOAD, ARCH), *_unless(EQUAL, AUDIT_ARCH[machine], errno.EPERM)]
    steps += [_step(LOAD, NUMBER)]
    if column == 0:
        steps += _when(AT_LEAST, X32, errno.EPERM)
    for numbers in DENIED.values():
        steps += _when(EQUAL, numbers[column], errno.EPERM)
    steps += _when(EQUAL, CLONE3[column], errno.ENOSYS)  # its flags are out of sight; clone's not
    steps += _only(CLONE[column], _when(ANY_BIT, NEW_NAMESPACES, errno.EPERM))
    allowed = [_step(EQUAL, family, len(FAMILIES) - n) for n, family in enumerate(FAMILIES)]
    steps += _only(SOCKET[column], [*allowed, _step(RETURN, REFUSE | errno.EAFNOSUPPORT)])
    return [*steps, _step(RETURN, ALLOW)]


def _step(code: int, value: int, when: int = 0, unless: int = 0) -> bytes:
    """One instruction; when and unless are how many to pass over."""
    return struct.pack("HBBI", code, when, unless, value)


def _when(test: int, value: int, code: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(RETURN, REFUSE | code)]


def _unless(test: int, value: int, code: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(RETURN, REFUSE | code)]


def _only(number: int, steps: list[bytes]) -> list[bytes]:
    """Steps on a call's first argument, for this call alone; behind them it is allowed."""
    inside = [_step(LOAD, FIRST_ARGUMENT), *steps, _step(RETURN, ALLOW)]
    return [_step(EQUAL, number, 0, len(inside)), *inside]
