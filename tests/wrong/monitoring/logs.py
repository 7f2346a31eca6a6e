"""8.4 describe_error, request_record, DailyLog."""

import json
from pathlib import Path

from tests.parts import part
from tests.wrong.monitoring.times import method


def described(m, change) -> None:
    """change(chain, error) takes the place of what describe_error gives."""
    right = m.describe_error
    m.describe_error = lambda error: change(right(error), error)


def recorded(m, change) -> None:
    """change(record, timeline) takes the place of a request's record."""
    right = m.request_record
    m.request_record = lambda timeline: change(right(timeline), timeline)


@part("8.4")
def message_beside(m):
    """The message is told as well."""
    described(m, lambda chain, error: [{**one, "message": str(error)} for one in chain])


@part("8.4")
def arguments_beside(m):
    """The arguments are told as well."""
    described(m, lambda chain, error: [{**chain[0], "frames": [repr(error.args)]}, *chain[1:]])


@part("8.4")
def notes_beside(m):
    """The notes are told as well."""

    def change(chain, error):
        chain[0]["frames"] += getattr(error, "__notes__", [])
        return chain

    described(m, change)


@part("8.4")
def whole_paths(m):
    """Files with their folders."""
    described(
        m,
        lambda chain, _: [{**c, "frames": [f"/somewhere/{f}" for f in c["frames"]]} for c in chain],
    )


@part("8.4")
def innermost_first(m):
    """Frames the other way round."""
    described(m, lambda chain, _: [{**c, "frames": c["frames"][::-1]} for c in chain])


@part("8.4")
def suppressed_context_told(m):
    """What was suppressed is told."""
    right = m.describe_error

    def told(error):
        chain = right(error)
        if error.__suppress_context__ and error.__cause__ is None and error.__context__:
            chain += right(error.__context__)
        return chain

    m.describe_error = told


@part("8.4")
def context_unseen(m):
    """Only an explicit cause is followed."""
    described(m, lambda chain, error: chain if error.__cause__ else chain[:1])


@part("8.4")
def cause_first(m):
    """The first error of the chain comes first."""
    described(m, lambda chain, _: chain[::-1])


@part("8.4")
def endless_chain(m):
    """More than five errors."""
    m.LONGEST_CHAIN = 50


@part("8.4")
def endless_frames(m):
    """More than twenty frames."""
    m.DEEPEST = 500


@part("8.4")
def outermost_frames(m):
    """The outermost frames are kept, not those where it happened."""
    import traceback

    def told(error):
        frames = traceback.extract_tb(error.__traceback__)[:20]
        places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
        return [
            {**chain, "frames": places} if n == 0 else chain for n, chain in enumerate(right(error))
        ]

    right = m.describe_error
    m.describe_error = told


@part("8.4")
def record_with_more(m):
    """A record with more keys."""
    recorded(m, lambda record, _: record | {"prompt": "hidden"})


@part("8.4")
def zeros_for_nothing(m):
    """0 where there is nothing."""
    recorded(
        m,
        lambda record, _: {
            n: 0.0 if v is None and n.endswith("_s") else v for n, v in record.items()
        },
    )


@part("8.4")
def not_rounded(m):
    """Times with all their digits are as good as rounded ones only where nobody looks."""
    recorded(m, lambda record, line: record | {"e2e_s": round(line.e2e, 2)})


@part("8.4")
def longest_gap_is_the_last(m):
    """The longest gap is the newest."""
    recorded(
        m, lambda record, line: record | {"inter_token_max_s": line.gap and round(line.gap, 6)}
    )


@part("8.4")
def median_is_the_mean(m):
    """The mean takes the place of the median."""

    def change(record, line):
        gaps = line.inter_token
        mean = round(sum(gaps) / len(gaps), 6) if gaps else None
        return record | {"inter_token_p50_s": mean}

    recorded(m, change)


@part("8.4")
def error_told_as_reason(m):
    """The class of the error is left out."""
    recorded(m, lambda record, _: record | {"error": None})


@part("8.4")
def written_twice(m):
    """Every line comes twice."""

    def change(right, self, line):
        right(self, line)
        right(self, line)

    method(m, "DailyLog", "_append", change)


@part("8.4")
def raises_when_full(m):
    """What the system refuses is raised."""

    def change(right, self, record):
        if right(self, record) is False:
            raise OSError("no space left")
        return True

    method(m, "DailyLog", "write", change)


@part("8.4")
def says_nothing_of_success(m):
    """write returns None."""
    method(m, "DailyLog", "write", lambda right, self, record: right(self, record) and None)


@part("8.4")
def gives_up(m):
    """After one failure nothing is written any more."""

    def change(right, self, record):
        if self.lost:
            self.lost += 1
            return False
        return right(self, record)

    method(m, "DailyLog", "write", change)


@part("8.4")
def lost_not_counted(m):
    """Lost lines are not counted."""
    m.DailyLog.lost = property(lambda self: 0, lambda self, value: None)


@part("8.4")
def local_days(m):
    """Days begin an hour earlier."""
    right = m.DailyLog.__init__

    def init(self, folder, name, keep=7, now=None):
        right(self, folder, name, keep, now)
        self._now = lambda: now() + 3600

    m.DailyLog.__init__ = init


@part("8.4")
def opened_once(m):
    """The first file is kept for ever."""

    def change(right, self, path):
        if self._path is None:
            right(self, path)

    method(m, "DailyLog", "_open", change)


@part("8.4")
def falls_back_to_yesterday(m):
    """When the new file cannot be opened, the old one goes on."""

    def change(right, self, path):
        kept = self._path
        try:
            right(self, path)
        except OSError:
            if kept is None or not kept.is_file():
                raise
            right(self, kept)

    method(m, "DailyLog", "_open", change)


@part("8.4")
def keeps_eight(m):
    """One file too many."""
    right = m.DailyLog.__init__

    def init(self, folder, name, keep=7, now=None):
        right(self, folder, name, keep + 1, now)

    m.DailyLog.__init__ = init


@part("8.4")
def keeps_all(m):
    """Nothing is ever deleted."""
    method(m, "DailyLog", "_sweep", lambda right, self: None)


@part("8.4")
def deletes_the_open_one(m):
    """The newest stay by name, even if the open one is older."""

    def change(right, self):
        files = sorted(self.folder.glob(f"{self.name}-[0-9]*-[0-9][0-9]-[0-9][0-9].jsonl"))
        for path in files[: -self.keep]:
            path.unlink()

    method(m, "DailyLog", "_sweep", change)


@part("8.4")
def deletes_other_logs(m):
    """Files of other logs go too."""

    def change(right, self):
        files = sorted(p for p in self.folder.glob("*.jsonl") if p != self._path)
        for path in files[: max(len(files) - self.keep + 1, 0)]:
            path.unlink()

    method(m, "DailyLog", "_sweep", change)


@part("8.4")
def writes_at_close(m):
    """Lines are kept until the log is closed."""

    def append(right, self, line):
        self.__dict__.setdefault("kept", []).append((self._path, line))

    def close(right, self):
        for path, line in self.__dict__.pop("kept", []):
            with path.open("ab") as file:
                file.write(line)
        right(self)

    method(m, "DailyLog", "_append", append)
    method(m, "DailyLog", "close", close)


@part("8.4")
def other_letters(m):
    """A line is UTF-8, and a half character spoils it."""

    def change(right, self, record):
        try:
            json.dumps(record, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            return False
        return right(self, record)

    method(m, "DailyLog", "write", change)


@part("8.4")
def only_the_top_is_finite(m):
    """NaN deeper down stays."""

    def shallow(value):
        if isinstance(value, dict):
            return {
                k: None if v != v or v in (float("inf"), float("-inf")) else v
                for k, v in value.items()
            }
        return value

    m._finite = shallow


@part("8.4")
def time_at_the_end(m):
    """The time is the last key."""

    def change(right, self, record):
        with self._lock:
            self._open(self.folder / f"{self.name}-{m.utc(self._now())[:10]}.jsonl")
            line = {**record, "at": m.utc(self._now())}
            self._append(json.dumps(line).encode() + b"\n")
        return True

    method(m, "DailyLog", "write", change)


@part("8.4")
def always_a_line_end_first(m):
    """A file that was there gets an empty line."""

    def change(right, self, path):
        fresh = path != self._path and path.exists()
        right(self, path)
        self._torn = self._torn or fresh

    method(m, "DailyLog", "_open", change)


@part("8.4")
def without_a_lock(m):
    """A line is written in two parts, without a lock."""
    import contextlib
    import time

    def append(right, self, line):
        self._file.write(line[:20])
        time.sleep(0)
        self._file.write(line[20:])

    right = m.DailyLog.__init__

    def init(self, *args, **kwargs):
        right(self, *args, **kwargs)
        self._lock = contextlib.nullcontext()

    m.DailyLog.__init__ = init
    method(m, "DailyLog", "_append", append)
