"""Linux namespaces: a process tree with files, network, users and process numbers of its own.

What a container program would do, in the few system calls that are needed (clone(2),
mount_setattr(2), pivot_root(2), capabilities(7)); Python has no functions for them before 3.12.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

from course import sandbox_filter

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    *(0x20000, 0x4000000, 0x8000000),
    *(0x10000000, 0x20000000, 0x40000000),
)
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, AT_RECURSIVE, AT_FDCWD = 1, 2, 4, 0x8000, -100
SYS_MOUNT_SETATTR = 442  # the same number on all machines; Linux 5.12
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}
SYS_CAPSET = {"x86_64": 126, "aarch64": 91, "riscv64": 91}
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
MOST_FILES = 10_000  # in each place that may be written; every one takes memory of the kernel
DEVICES = ("null", "zero", "full", "random", "urandom")


def supported() -> bool:
    """Whether the system calls are known for this machine; whether they work is to be tried."""
    return sys.platform == "linux" and platform.machine() in SYS_PIVOT_ROOT


def address_space() -> int:
    """Bytes of address space that this process has taken; most of it is Python's and torch's."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def unshare() -> None:
    """Leave the namespaces of this process; its next child is process 1 of a new tree.

    Without root, a namespace of users comes first, in which this user may do the rest.
    """
    kinds = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
    if os.geteuid() == 0:
        _call("unshare", kinds)
        return
    user, group = os.getuid(), os.getgid()
    _call("unshare", kinds | NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def enter(root: str, shown: list[str], covered: list[str], files: str, room: int) -> None:
    """Make a tree of files that holds only what is shown, read-only, and have nothing else.

    Args:
        root: an empty folder to build it on.
        shown: files and folders, each to be found in its own place.
        covered: folders of which nothing is shown but what is listed itself, wherever they lie.
        files: a folder that may be written, and is empty at first, as /tmp is.
        room: bytes that may be written below each of the two.
    """
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    os.mkdir(f"{root}/tmp")
    small = f"size={room},nr_inodes={MOST_FILES},mode=1777"
    _mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, small)
    _show_all(root, shown, [c for c in covered if any(c.startswith(f"{s}/") for s in shown)])
    os.makedirs(root + files, exist_ok=True)
    _mount("tmpfs", root + files, "tmpfs", MS_NOSUID | MS_NODEV, small)
    _make_devices(root)
    _make_etc(root)
    os.mkdir(f"{root}/proc")
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.chdir(root)
    _syscall(SYS_PIVOT_ROOT[platform.machine()], b".", b".")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _set_attributes("/", ATTR_RDONLY, 0)


def raise_loopback() -> None:
    """Switch 127.0.0.1 on, the only address there is: a server may be tried, nobody is reached."""
    import fcntl  # Windows has none, and imports this module too

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def drop_privileges(user: int | None) -> None:
    """Become this user (where given), and be unable to gain anything again."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
    for capability in range(64):
        if _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) and capability > 40:
            break
    if user is not None:
        os.setresuid(user, user, user)
    header = struct.pack("Ii", 0x20080522, 0)
    _syscall(SYS_CAPSET[platform.machine()], header, bytes(24))
    refuse_calls()


def refuse_calls() -> None:
    """Gain nothing by running a file, and do without the calls that lead out of the limits."""
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    sandbox_filter.install()


def _show_all(root: str, shown: list[str], covered: list[str]) -> None:
    """What is shown, and empty folders where something covered would be seen; outer ones first."""
    made = []
    for path in sorted({*shown, *covered}, key=lambda path: path.split("/")):
        if path in shown:
            _show(root, path)
        elif os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
            made.append(root + path)
    for cover in made:
        _set_attributes(cover, ATTR_RDONLY, 0)


def _show(root: str, path: str) -> None:
    """Bind a file or folder into the tree in its own place; a link stays a link."""
    target = root + path
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    _make_place(path, target)
    _mount(path, target, None, MS_BIND | MS_REC)
    _set_attributes(target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE)


def _make_devices(root: str) -> None:
    os.makedirs(f"{root}/dev/shm")
    small = "size=64m,nr_inodes=1k,mode=1777"
    _mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, small)
    for name in DEVICES:
        _make_place(f"/dev/{name}", f"{root}/dev/{name}")
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")


def _make_etc(root: str) -> None:
    """Enough for libraries that ask who they are."""
    os.makedirs(f"{root}/etc", exist_ok=True)
    for name, text in (
        ("passwd", "learner:x:{}:{}::/tmp:/bin/false\n"),
        ("group", "learner:x:{1}:\n"),
        ("hosts", "127.0.0.1 localhost\n"),
    ):
        with open(f"{root}/etc/{name}", "w", encoding="ascii") as file:
            file.write(text.format(os.getuid(), os.getgid()))


def _make_place(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        with open(target, "wb"):
            pass


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode() or None)


def _set_attributes(target: str, attributes: int, flags: int) -> None:
    attr = struct.pack("QQQQ", attributes, 0, 0, 0)
    _syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, attr, len(attr))


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args) -> None:
    if getattr(_libc(), name)(*args) != 0:
        raise _error(name)


def _syscall(number: int, *args) -> None:
    if _libc().syscall(ctypes.c_long(number), *args) < 0:
        raise _error(f"system call {number}")


def _error(name: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{name}: {errno.errorcode.get(code, '?')} {os.strerror(code)}")
