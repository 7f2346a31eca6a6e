"""Chapter 08 beside the code under test: logs, and what exceptions leave in them (8.4)."""

import contextlib
import copy
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil

from tests.scenarios.helpers import Unusable, told
from tests.scenarios.monitoring_events import event_of

# --- exceptions ---


def fail_with(error: BaseException, depth: int):
    """Raise it, from so many calls further down."""
    if depth > 0:
        fail_with(error, depth - 1)
    raise error


def raised(error: BaseException, depth: int = 0) -> BaseException:
    """The error, as somebody who caught it has it."""
    try:
        fail_with(error, depth)
    except BaseException as caught:
        return caught


def _key(secret):
    return raised(KeyError(secret))


def _decoding(secret):
    try:
        secret.encode("utf-8").join([b"", b"\xff"]).decode("utf-8")
    except UnicodeDecodeError as caught:
        return caught


def _noted(secret):
    error = ValueError("see the note")
    error.add_note(secret)
    return raised(error, 2)


def _caused(secret):
    try:
        try:
            fail_with(LookupError(secret), 1)
        except LookupError as first:
            raise RuntimeError(f"asked for {secret}") from first
    except RuntimeError as caught:
        return caught


def _in_handling(secret):
    try:
        try:
            fail_with(LookupError(secret), 0)
        except LookupError:
            raise RuntimeError(secret)  # noqa: B904
    except RuntimeError as caught:
        return caught


def _suppressed(secret):
    try:
        try:
            fail_with(LookupError(secret), 0)
        except LookupError:
            raise RuntimeError(secret) from None
    except RuntimeError as caught:
        return caught


def _never_raised(secret):
    return ValueError(secret)


def _odd(secret):
    class Odd(Exception):
        def __str__(self):
            raise ValueError(secret)

    return raised(Odd(secret))


def _deep(secret):
    return raised(ValueError(secret), 40)


def _chain(secret):
    error = None
    for number in range(9):
        later = [KeyError, ValueError, TypeError][number % 3](secret)
        later.__cause__, error = error, later
    return raised(error)


ERRORS = {
    "key": _key,
    "decoding": _decoding,
    "noted": _noted,
    "caused": _caused,
    "in_handling": _in_handling,
    "suppressed": _suppressed,
    "never_raised": _never_raised,
    "odd": _odd,
    "deep": _deep,
    "chain": _chain,
}


def places_of(error: BaseException) -> list[str]:
    """File, line and function of every frame, outermost first, read from the traceback itself."""
    found, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        found.append(f"{Path(code.co_filename).name}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    return found


@told
def error_described(module, name: str, secret: str) -> dict:
    """What describe_error says, and what the error and those that led to it are."""
    error = ERRORS[name](secret)
    chain, one = [], error
    while one is not None:
        chain.append([type(one).__name__, places_of(one)])
        context = None if one.__suppress_context__ else one.__context__
        one = context if one.__cause__ is None else one.__cause__
    found = module.describe_error(error)
    return {"found": found, "chain": chain, "told": json.dumps(found, default=repr)}


@told
def record_of(module, request: dict, specs: list):
    """The record of a timeline with these events."""
    timeline = module.Timeline(event_of(request))
    for spec in specs:
        timeline.note(event_of(spec))
    return module.request_record(timeline)


# --- files ---


@contextlib.contextmanager
def far_away():
    """The local time is nine hours ahead of UTC; on Windows it is what it is."""
    if not hasattr(time, "tzset"):
        yield
        return
    before = os.environ.get("TZ")
    os.environ["TZ"] = "FAR-9"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@told
def line_read_far_away(module, line: str):
    """read_line where the local time is not UTC."""
    with far_away():
        return module.read_line(line)


@told
def log_session(module, setting: dict, steps: list) -> list:
    """What each step of a DailyLog gives, in a folder of its own.

    setting: "name"; "keep" (None: left out); "start", seconds since 1970.
    Steps: ["write", record]; ["clock", seconds]; ["close"]; ["lost"]; ["files"]: their names;
    ["lines", file]: its lines, as what JSON reads or as text; ["plant", file, text];
    ["block", file]: something stands where the file belongs; ["unblock", file].
    """
    with tempfile.TemporaryDirectory(prefix="course-files-") as top:
        folder, clock = Path(top) / "logs" / "here", [setting["start"]]
        given = {} if setting["keep"] is None else {"keep": setting["keep"]}
        log = module.DailyLog(str(folder), setting["name"], now=lambda: clock[0], **given)
        try:
            with far_away():
                return [_log_step(log, folder, clock, *step) for step in steps]
        finally:
            log.close()


def _log_step(log, folder: Path, clock: list, name: str, *args):
    if name == "write":
        before = copy.deepcopy(args[0])
        found = log.write(args[0])
        if args[0] != before:
            raise Unusable("write changed the record that it was given")
        return found
    if name == "clock":
        clock[0] = args[0]
    elif name == "close":
        log.close()
    elif name == "lost":
        return log.lost
    elif name == "files":
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    elif name == "lines":
        return _lines(folder / args[0])
    elif name == "plant":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / args[0]).write_bytes(args[1].encode("utf-8"))
    elif name == "block":
        (folder / args[0]).mkdir(parents=True)
        (folder / args[0] / "something").touch()
    elif name == "unblock":
        shutil.rmtree(folder / args[0])
    return None


def _lines(path: Path) -> list:
    if not path.is_file():
        return ["there is no such file"]
    text = path.read_bytes().decode("ascii", errors="replace")
    return [_parsed(line) for line in text.split("\n")]


def _parsed(line: str):
    def refuse(constant):
        raise ValueError(constant)

    try:
        return json.loads(line, parse_constant=refuse)
    except ValueError:
        return line


@told
def log_on_a_full_disk(module, room: int) -> dict | None:
    """What three writes gave, how many lines are lost, and the lines that are whole.

    Of the second line the disk takes so many bytes. None where no such disk can be had.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    with tempfile.TemporaryDirectory(prefix="course-files-") as top:
        path, log = Path(top) / "full-1970-01-01.jsonl", module.DailyLog(top, "full", now=float)
        with contextlib.closing(log):
            wrote = [log.write({"n": 1})]
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            size = path.stat().st_size if path.exists() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, before[1]))
            try:
                wrote.append(log.write({"n": 2}))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            wrote.append(log.write({"n": 3}))
            lost = log.lost
        whole = [line for line in _lines(path) if isinstance(line, dict)]
        return {"wrote": wrote, "lost": lost, "whole": [line.get("n") for line in whole]}


@told
def log_raced(module, threads: int, lines: int) -> list:
    """[lines that are whole, lines that are not, lost] after threads wrote at the same time."""
    with tempfile.TemporaryDirectory(prefix="course-files-") as top:
        log = module.DailyLog(Path(top), "race", now=lambda: 0.0)
        barrier = threading.Barrier(threads)

        def work(number):
            barrier.wait()
            for line in range(lines):
                log.write({"thread": number, "line": line, "fill": "x" * (97 * number)})

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = _lines(Path(top) / "race-1970-01-01.jsonl")[:-1]
        lost = log.lost
        log.close()
    whole = {(line["thread"], line["line"]) for line in found if isinstance(line, dict)}
    return [len(whole), sum(not isinstance(line, dict) for line in found), lost]


@told
def log_files_open(module, days: int) -> list | None:
    """How many files of a log are open after a line a day, and how many after close.

    None where the system does not tell.
    """
    with tempfile.TemporaryDirectory(prefix="course-files-") as top:
        clock = [0.0]
        log = module.DailyLog(top, "open", now=lambda: clock[0])
        try:
            for day in range(days):
                clock[0] = 86_400.0 * day
                log.write({"day": day})
            found = [_open_in(top)]
            log.close()
            return [*found, _open_in(top)]
        except (psutil.Error, OSError):
            return None
        finally:
            log.close()


def _open_in(folder: str) -> int:
    inside = Path(folder).resolve()
    opened = psutil.Process().open_files()
    return sum(Path(file.path).parent == inside for file in opened)


@told
def log_seen_at_once(module) -> list:
    """What another reader finds in the file after one line, while the log is open."""
    with tempfile.TemporaryDirectory(prefix="course-files-") as top:
        log = module.DailyLog(Path(top), "now", now=lambda: 0.0)
        with contextlib.closing(log):
            log.write({"a": 1})
            return _lines(Path(top) / "now-1970-01-01.jsonl")
