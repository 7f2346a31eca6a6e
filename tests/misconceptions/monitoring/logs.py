"""Wrong versions of 8.4."""

import json
import traceback
from pathlib import Path

from course.misconceptions import misconception
from solutions.json_log import utc
from solutions.request_timing import percentile


@misconception("8.4", "describe_error")
def whole_traceback(error):
    """You log the formatted traceback. It ends with the message, and the message of an exception
    quotes what was wrong: often the text of a user. Class, file, line and function are ours.
    """
    lines = traceback.format_exception(error)
    return [{"error": type(error).__name__, "frames": [line.strip() for line in lines]}]


@misconception("8.4", "describe_error")
def error_as_repr(error):
    """You log repr(error). It holds the message, and the message of an exception quotes what was
    wrong: a KeyError is its key. Of the exception itself only the name of its class may be told.
    """
    chain = []
    while error is not None and len(chain) < 5:
        frames = traceback.extract_tb(error.__traceback__)[-20:]
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        chain.append({"error": repr(error), "frames": places})
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context
    return chain


@misconception("8.4", "describe_error")
def without_the_cause(error):
    """You tell of the last exception only. It is often one that somebody raised while handling the
    real one: follow __cause__ and __context__.
    """
    frames = traceback.extract_tb(error.__traceback__)[-20:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return [{"error": type(error).__name__, "frames": places}]


@misconception("8.4", "request_record")
def tokens_that_were_sent(timeline):
    """You count the Token events. Not every token of an answer is sent: the end of a stop string
    is not, and a timeline may have begun late. Finished says how many there are.
    """
    asked, end, gaps = timeline.request, timeline.end, timeline.inter_token
    times = {
        "queue_s": timeline.queue,
        "first_token_s": timeline.first_token,
        "inter_token_p50_s": percentile(gaps, 50) if gaps else None,
        "inter_token_max_s": max(gaps, default=None),
        "e2e_s": timeline.e2e,
        "tokens_per_s": timeline.tokens_per_second,
    }
    record = {"id": asked.id, "reason": end.reason, "error": end.error, "stream": asked.stream}
    record |= {"prompt_tokens": asked.prompt_tokens, "characters": asked.characters}
    record |= {"fingerprint": asked.fingerprint, "max_tokens": asked.max_tokens}
    record["tokens"] = len(timeline.tokens)
    return record | {n: None if v is None else round(v, 6) for n, v in times.items()}


@misconception("8.4", "DailyLog.write")
def nan_in_json(self, record):
    """You write NaN and Infinity as Python does. They are no JSON: a strict reader refuses the
    whole line. Write null.
    """
    with self._lock:
        moment = utc(self._now())
        line = json.dumps({"at": moment, **record}).encode("ascii") + b"\n"
        try:
            self._open(self.folder / f"{self.name}-{moment[:10]}.jsonl")
            self._append(b"\n" + line if self._torn else line)
        except OSError:
            self.lost += 1
            self._drop()
            return False
        return True


@misconception("8.4", "DailyLog._open")
def begun_anew_each_time(self, path):
    """You open the file of the day for writing, which empties it: after a restart the morning is
    gone. Open it to append.
    """
    if path == self._path:
        return
    self._drop()
    self.folder.mkdir(parents=True, exist_ok=True)
    self._file = path.open("wb", buffering=0)
    self._path, self._torn = path, False
    self._sweep()


@misconception("8.4", "DailyLog._sweep")
def deletes_what_looks_alike(self):
    """You delete whatever begins with the name of the log. There may be notes of a person, or a
    packed file, beside it: delete only files whose whole name is one of yours.
    """
    dated = sorted(self.folder.glob(f"{self.name}-*"))
    others = [path for path in dated if path != self._path]
    for path in others[: max(len(others) - self.keep + 1, 0)]:
        path.unlink()


@misconception("8.4", "DailyLog._append")
def buffered_lines(self, line):
    """You write without looking whether the file ends with a whole line, so that what was cut off
    before a crash swallows your next line.
    """
    self._file.write(line.lstrip(b"\n"))
    self._torn = False
