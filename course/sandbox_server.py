"""The process that workers are forked from, with torch already imported: it costs a second once.

`python -m course.sandbox_server FD` answers on a socket (Linux only): an order is a line of JSON
and four pipes (requests, answers, ending, leash). It never runs a learner's code itself. For each
order it forks a keeper, which makes the sandbox, forks the worker into it, and waits. When the
judge lets go of the leash, or dies, the keeper ends the worker and all that it has started.
"""

import contextlib
import ctypes
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import tempfile

import numpy
import safetensors.torch  # noqa: F401
import torch
import torch.profiler

from course import sandbox_linux, worker

LOOK = 0.1  # seconds between two looks at how much memory a worker uses
MIB = 2**20
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Fork a keeper for every order, until the judge closes the socket."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge decides when it is over
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers: they report by pipe
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.sendall(b"ready\n")
    while True:
        line, pipes, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not line:
            return
        if os.fork() == 0:
            orders.close()
            _end_with(lambda: keep(json.loads(line), *pipes))  # noqa: B023
        for pipe in pipes:
            os.close(pipe)


def keep(order: dict, requests: int, answers: int, ending: int, leash: int) -> int:
    """Make the sandbox with a worker in it, wait for its end or the leash's, say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what is left behind comes here
    proc = os.open("/proc", os.O_RDONLY)  # the system's: in the sandbox, this path is another
    try:
        if order["mode"] == "namespaces":
            sandbox_linux.unshare()
        first = os.fork()
    except Exception as error:
        os.write(ending, f"setup {type(error).__name__}: {error}".encode())
        return 1
    if first == 0:
        os.close(leash)
        os.close(proc)
        _end_with(lambda: begin(order, requests, answers, ending))
    os.close(requests)
    os.close(answers)
    reason = watch(first, leash, proc, order)
    end_all(proc)
    with contextlib.suppress(OSError):
        os.write(ending, reason.encode())
    return 0


def begin(order: dict, requests: int, answers: int, ending: int) -> int:
    """Process 1 of the sandbox: set it up, fork the worker, gather orphans until it ends."""
    try:
        if order["mode"] == "namespaces":
            sandbox_linux.raise_loopback()
            tree = (order[name] for name in ("root", "shown", "covered", "files", "room"))
            sandbox_linux.enter(*tree)
        _limit(order)
        if order["mode"] == "namespaces":
            sandbox_linux.drop_privileges(order.get("user"))
        else:
            _become(order.get("user"))
        _settle(order["folder"])
        child = os.fork()
    except Exception as error:
        os.write(ending, f"setup {type(error).__name__}: {error}".encode())
        return 1
    os.close(ending)
    if child == 0:
        _end_with(lambda: work(requests, answers))
    os.closerange(0, 4096)  # /proc/1/fd must lead nowhere
    while True:
        with contextlib.suppress(ChildProcessError, InterruptedError):
            pid, status = os.wait()
            if pid == child:
                return _code(status)


def _become(user: int | None) -> None:
    """This user, where one is given; and fewer system calls, where the kernel filters them."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    with contextlib.suppress(OSError):
        sandbox_linux.refuse_calls()


def _settle(folder: str) -> None:
    """Its own empty folder is where it is, and where its temporary files go."""
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    tempfile.tempdir = None


def work(requests: int, answers: int) -> int:
    """The worker itself: its streams in place, chance not as in its siblings."""
    os.dup2(requests, 0)
    os.dup2(answers, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.closerange(3, 4096)
    random.seed()
    numpy.random.seed()
    worker.main()
    return 0


def watch(first: int, leash: int, proc: int, order: dict) -> str:
    """Wait for the worker's end; end it when the leash goes or it takes too much."""
    poll = select.poll()
    poll.register(leash, select.POLLIN | select.POLLHUP)
    while True:
        pid, status = os.waitpid(first, os.WNOHANG)
        if pid:
            code = _code(status)
            return f"by signal {code - 128}" if code > 128 else f"exit code {code}"
        if poll.poll(LOOK * 1000):
            return _kill(first, proc, "killed")
        size, processes = _used(proc)
        if size > order["memory"]:
            return _kill(first, proc, f"memory {order['memory'] // MIB}")
        if processes > order["processes"]:
            return _kill(first, proc, f"processes {order['processes']}")


def end_all(proc: int) -> None:
    """End every process below this one, until there is none: one may fork while another dies."""
    for _ in range(1000):
        left = _descendants(proc)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return


def _kill(first: int, proc: int, reason: str) -> str:
    """End the tree: its process 1 takes all others along, where it is one."""
    with contextlib.suppress(OSError):
        os.kill(first, signal.SIGKILL)
    end_all(proc)
    return reason


def _used(proc: int) -> tuple[int, int]:
    """Bytes of memory that the processes below this one hold beyond what each began with, and how
    many processes they are.

    Each began as a copy of this one, whose pages they share until they write to them.
    """
    size, count = 0, 0
    began = _own_memory(proc, os.getpid())
    for pid in _descendants(proc):
        with contextlib.suppress(OSError, ValueError):
            size, count = size + max(_own_memory(proc, pid) - began, 0), count + 1
    return size, count


def _own_memory(proc: int, pid: int) -> int:
    """Bytes of a process that are no file's on a disk: shared memory is its own, too."""
    lines = _read(proc, f"{pid}/status").splitlines()
    counted = (line for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))
    return sum(int(line.split()[1]) for line in counted) * 1024


def _descendants(proc: int) -> list[int]:
    """Every process below this one, told by the parents that /proc/PID/stat names."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int(_read(proc, f"{name}/stat").rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _read(proc: int, name: str) -> bytes:
    """A small file of /proc, told by a descriptor of that folder."""
    file = os.open(name, os.O_RDONLY, dir_fd=proc)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _limit(order: dict) -> None:
    """What the kernel itself enforces, for each process of the sandbox."""
    for kind, amount in (
        (resource.RLIMIT_CORE, 0),
        # In namespaces the disk itself is small; elsewhere this is all that bounds a file.
        (resource.RLIMIT_FSIZE, 2**40 if order["mode"] == "namespaces" else 4 * 2**30),
        (resource.RLIMIT_NOFILE, 512),
        (resource.RLIMIT_AS, sandbox_linux.address_space() + order["memory"]),
        (resource.RLIMIT_CPU, order["cpu"]),
        # of a user of its own, or of its own namespace of users; a plain user has others
        *([(resource.RLIMIT_NPROC, order["processes"])] if order["mode"] != "plain" else []),
    ):
        _, hard = resource.getrlimit(kind)
        most = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(kind, (most, most))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out all the same, not the grader's process is taken


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _end_with(run) -> None:
    """Run what a forked child is for, and never return from it into the parent's code."""
    code = 1
    try:
        code = run()
    except BaseException:
        code = 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
