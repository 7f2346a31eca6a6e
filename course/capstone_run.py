"""The capstone as it runs: its server, and one check after the other.

A check that fails must not spoil the next. When it leaves requests under way, or the server has
ended, the next check gets a new server.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
from tqdm import tqdm

from course import background, capstone_words
from course.capstone_checks import ROWS, WAITING, Check
from course.capstone_target import Failed, Target, stop
from course.paths import MODELS, ROOT, WORK

SETTLE = 30.0  # seconds that a check which passed may leave requests under way
SETTLE_FAILED = 5.0  # and one that failed: a new server takes not much longer
LOGGED = 2.0  # and until an error that was answered is logged
MOST_NEW = 3  # servers for one run: with a layer that always leaves something there is no end
BROKEN = (ValueError, KeyError, IndexError, TypeError)  # of an answer in another shape
ANSWER = 1.0  # and this long before, it is asked where it stands
FIRST_WORDS, NEXT_WORDS = 5.0, 30.0  # seconds after which a start that takes long is told
Start = Callable[[], AbstractContextManager[Target]]
Tell = Callable[[Check, str | None], None]


def run(start: Start, checks: Sequence[Check], tell: Tell) -> None:
    """Every check, on a server that is empty; one that fails stops no other.

    Args:
        start: gives a server that is ready, as a context.
        tell: called for each check as soon as it is over, with what is wrong; None if it passed.

    Errors: NotReady when a server does not come up.
    """
    with ExitStack() as stack:
        target, new, before = stack.enter_context(start()), 0, None
        for check in tqdm(checks, unit="check", disable=None, leave=False):
            left = "" if before is None else _left(target, *before)
            if left and new < MOST_NEW:
                tqdm.write(f"({left}: a new server for the next check)", file=sys.stderr)
                target.process.kill()
                stack.close()
                target, new, left = stack.enter_context(start()), new + 1, ""
            logged = len(_errors(target))
            problem = outcome(check, target)
            if problem and (where := _raised(target, logged, problem)):
                problem += f" (raised in {where})"
            tell(check, f"{problem} ({left})" if problem and left else problem)
            before = (check, problem)


def outcome(check: Check, target: Target) -> str | None:
    """What is wrong; None when the check passed."""
    try:
        check.run(target)
    except Failed as problem:
        return str(problem)
    except (httpx.HTTPError, OSError) as problem:
        gone = "the server has ended" if target.process.poll() is not None else "no answer"
        return f"{gone} ({type(problem).__name__}: {problem})"
    except BROKEN as problem:
        return f"the answer has not the shape that clients read ({problem!r})"
    return None


def _left(target: Target, check: Check, problem: str | None) -> str:
    """What a check with this problem left behind that would spoil the next; empty when nothing.

    A server without such metrics leaves nothing: a new one would not have them either.
    """
    if target.process.poll() is not None:
        return f"the server ended in {check.name!r}"
    try:
        target.empty(SETTLE if problem is None else SETTLE_FAILED)
    except (Failed, httpx.HTTPError, OSError):
        return f"requests are left over from {check.name!r}"
    except BROKEN:
        pass
    return ""


def _errors(target: Target) -> list[str]:
    """The lines of the server's error log."""
    files = sorted(target.logs.glob("errors*.jsonl"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return [line for text in texts for line in text.splitlines()]


def _raised(target: Target, logged: int, problem: str) -> str:
    """Where in a learner's module something was raised since so many errors were logged; empty when
    that is not known. An answer of 500 may come a moment before its line.
    """
    end = time.monotonic() + (LOGGED if "500" in problem else 0)
    while True:
        found = innermost_frame(_errors(target)[logged:])
        if found or time.monotonic() >= end:
            return found
        time.sleep(0.05)


def innermost_frame(lines: Sequence[str]) -> str:
    """The innermost frame in a learner's module, of the first error that has one."""
    for line in lines:
        for one in line.split('"error"'):  # an error, then what led to it
            if found := list(capstone_words.FRAME.finditer(one)):
                return found[-1][0]
    return ""


@contextmanager
def server(references: Sequence[str], *more: str) -> Iterator[Target]:
    """`serve --mine` on a free port, ready; ended with the block, whatever happens in it.

    Errors: NotReady with what it said when it does not become ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs, said = Path(folder) / "logs", Path(folder) / "stderr"
        with said.open("wb") as stderr:
            process = _start(references, more, Path(folder), logs, stderr)
        try:
            url = background.address_when_ready(process, said, waiting=_Waiting(process))
            yield Target(url, process, logs)
        except BaseException:
            process.kill()  # nobody wants to wait for what still runs
            raise
        finally:
            background.end(process, lambda: stop(process))
            process.stdin.close()


class _Waiting:
    """Tells while a server starts that it takes long, and asks it where it stands."""

    def __init__(self, process: subprocess.Popen):
        self.process, self.next, self.is_asked = process, FIRST_WORDS, False

    def __call__(self, seconds: float, said: str) -> None:
        """See background.address_when_ready."""
        if seconds >= self.next - ANSWER and not self.is_asked:
            self._ask()
        if seconds >= self.next:
            self._tell(seconds, said)

    def _tell(self, seconds: float, said: str) -> None:
        places = capstone_words.places(said)  # the answer to the last question
        standing = f"; it stands in {places[-1]}" if places else ""
        doing = capstone_words.doing(said)
        tqdm.write(f"(waiting for the server, {seconds:.0f} s: {doing}{standing})", sys.stderr)
        self.next, self.is_asked = self.next + NEXT_WORDS, False

    def _ask(self) -> None:
        self.is_asked = True
        with suppress(OSError):  # it has ended: that is told next
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()


def _start(references, more, folder: Path, logs: Path, stderr) -> subprocess.Popen:
    settings = {"port": 0, "max-running": ROWS, "max-waiting": WAITING, "max-context": 512}
    settings |= {"log-dir": logs, "log-seconds": 3600, "queue-timeout": 120}
    command = [sys.executable, "-m", "course.capstone_server", "--mine"]
    command += [word for name in references for word in ("--reference", name)]
    command += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    (folder / "llm.toml").touch()  # the settings are the ones here, not those of the learner
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")}
    environment |= {"COURSE_WORK": str(WORK), "COURSE_MODELS": str(MODELS)}
    environment |= {"LLM_CONFIG": str(folder / "llm.toml"), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*command, *more],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,  # it ends with us
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        **background.APART,
    )
