"""The capstone as it runs: its server, and one check after the other.

A check that fails must not spoil the next. When it leaves requests under way, or the server has
ended, the next check gets a new server.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import httpx
from tqdm import tqdm

from course import background
from course.capstone_checks import ROWS, WAITING, Check
from course.capstone_target import Failed, Target, stop
from course.paths import MODELS, ROOT, WORK

SETTLE = 30.0  # seconds that a check which passed may leave requests under way
SETTLE_FAILED = 5.0  # and one that failed: a new server takes not much longer
MOST_NEW = 3  # servers for one run: with a layer that always leaves something there is no end
BROKEN = (ValueError, KeyError, IndexError, TypeError)  # of an answer in another shape
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
            problem = outcome(check, target)
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


@contextmanager
def server(references: Sequence[str], *more: str) -> Iterator[Target]:
    """`serve --mine` on a free port, ready; ended with the block, whatever happens in it.

    Errors: NotReady with the last it said when it does not become ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs, said = Path(folder) / "logs", Path(folder) / "stderr"
        with said.open("wb") as stderr:
            process = _start(references, more, Path(folder), logs, stderr)
        try:
            yield Target(background.address_when_ready(process, said), process, logs)
        except BaseException:
            process.kill()  # nobody wants to wait for what still runs
            raise
        finally:
            background.end(process, lambda: stop(process))
            process.stdin.close()


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
