"""Attacks on what bounds a worker: memory that nobody counts, namespaces, sockets, keys, files.

The body of `feed_forward` (4.4), as in tests/adversaries.py; LookupError says that it worked.
"""

WRONG = "has shape|differs|should be a tensor"  # refused, it gave up and returned a wrong value

# name: (body of the function, what the reason must match)
BODIES = {
    "memory_in_files_without_a_name": (
        """
        import os
        kept = []
        for _ in range(200):
            kept.append(os.memfd_create('x'))
            os.write(kept[-1], b'x' * 2**24)
        raise LookupError('memory that nobody counts')
        """,
        "raised PermissionError",
    ),
    "memory_shared_by_children": (
        """
        import mmap, os, time
        for _ in range(4):
            if os.fork() == 0:
                kept = mmap.mmap(-1, 400 * 2**20)
                for at in range(0, len(kept), 4096):
                    kept[at] = 1
                time.sleep(60)
        time.sleep(60)
        """,
        "more than the .* of memory|did not finish in time",
    ),
    "memory_of_system_v": (
        """
        import ctypes
        libc = ctypes.CDLL(None)
        if libc.shmget(0, ctypes.c_size_t(2**30), 0o1600) != -1:
            raise LookupError('memory that outlives its process')
        return x * 0
        """,
        WRONG,
    ),
    "namespaces_of_its_own": (
        """
        import ctypes
        libc = ctypes.CDLL(None)
        if libc.unshare(0x10000000 | 0x20000) == 0:
            raise LookupError('root in a namespace of users')
        return x * 0
        """,
        WRONG,
    ),
    "a_child_in_namespaces_of_its_own": (
        """
        import ctypes, os, platform, signal
        libc = ctypes.CDLL(None)
        number = 56 if platform.machine() == 'x86_64' else 220
        child = libc.syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child != -1:
            raise LookupError('a child with root of its own')
        return x * 0
        """,
        WRONG,
    ),
    "sockets_of_other_families": (
        """
        import socket
        for family in range(3, 46):  # packets, netlink, keys, the host of a virtual machine
            if family == socket.AF_INET6:
                continue
            for kind in (socket.SOCK_STREAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                try:
                    socket.socket(family, kind)
                except OSError:
                    continue
                raise LookupError(f'a socket of family {family}')
        return x * 0
        """,
        WRONG,
    ),
    "a_key_for_the_next_worker": (
        """
        import ctypes, platform
        libc = ctypes.CDLL(None)
        number = 248 if platform.machine() == 'x86_64' else 217
        if libc.syscall(number, b'user', b'note', b'hidden input', 12, -4) != -1:
            raise LookupError('a key that stays')
        return x * 0
        """,
        WRONG,
    ),
    "calls_of_another_table": (
        """
        import ctypes
        libc = ctypes.CDLL(None)
        if libc.syscall(0x40000000 | 272, 0x10000000) == 0:  # unshare of the x32 table
            raise LookupError('called')
        return x * 0
        """,
        WRONG,
    ),
    "files_without_end": (
        """
        import os
        for number in range(50_000):
            os.close(os.open(f'file{number}', os.O_CREAT | os.O_WRONLY))
        raise LookupError('every one takes memory of the kernel')
        """,
        "raised OSError|raised LookupError",
    ),
    "a_line_of_150_000_characters": (
        "y = '" + "z" * 150_000 + "'; raise ValueError('long')",
        "raised ValueError",
    ),
}


def nested_finally(depth: int) -> str:
    """A few lines that a compiler turns into 2 ** depth copies of the innermost."""
    lines = ["def f():"]
    for level in range(1, depth + 1):
        lines += [" " * level + "try: return", " " * level + "finally:"]
    return "\n".join([*lines, " " * (depth + 1) + "f()"])


TOPS = {
    "top_nested_finally": (nested_finally(18), "does not run"),
    "top_return": ("return 1", "does not run: it raised SyntaxError"),
}
