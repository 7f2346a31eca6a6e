"""Chapter 08 by someone who calculates in numpy, and writes Prometheus' format by hand."""

import contextlib
import datetime as dt
import gc
import io
import json
import re
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import numpy as np

from solutions.diagnose import NEXT, Finding
from solutions.json_log import utc
from solutions.metrics import COUNTERS, FAULTS, GAUGES, HISTOGRAMS, REJECTIONS, memory_bytes
from solutions.periodic_log import FIELDS, Series
from solutions.request import REASONS
from solutions.upgrade_gate import Benchmark, Comparison, Figure, Verdict, student_tail

# --- 8.1 ---


class Timeline:
    def __init__(self, request):
        self.request, self.admitted, self.tokens, self.end = request, None, [], None

    def note(self, event):
        match type(event).__name__:
            case "Token":
                self.tokens.append(event.at)
            case "Admitted" if self.admitted is None:
                self.admitted = event.at
            case "Finished":
                self.end = event

    def __getattr__(self, name):
        start = self.request.at
        if name == "queue":
            return None if self.admitted is None else self.admitted - start
        if name == "first_token":
            return self.tokens[0] - start if self.tokens else None
        if name == "gap":
            return float(np.diff(self.tokens[-2:])[0]) if len(self.tokens) > 1 else None
        if name == "inter_token":
            return np.diff(self.tokens).tolist()
        if name == "e2e":
            return None if self.end is None else self.end.at - start
        if name == "tokens_per_second":
            taken = np.ptp(self.tokens) if len(self.tokens) else 0
            return None if taken == 0 else float((len(self.tokens) - 1) / taken)
        raise AttributeError(name)


class Timings:
    """A list of [id, timeline], oldest first."""

    def __init__(self, limit=10_000):
        self.limit, self.forgotten, self.pairs, self.lock = limit, 0, [], Lock()

    def watch(self, event):
        kind = type(event).__name__
        with self.lock:
            if kind in ("Rejected", "Stepped"):
                return None
            known = [line for name, line in self.pairs if name == event.id]
            if kind in ("Arrived", "Finished"):
                self.pairs = [pair for pair in self.pairs if pair[0] != event.id]
            if kind == "Arrived":
                self.pairs.append([event.id, Timeline(event)])
                self.forgotten += max(len(self.pairs) - self.limit, 0)
                self.pairs = self.pairs[-self.limit :]
                return self.pairs[-1][1]
            for line in known:
                line.note(event)
            return known[0] if known else None

    def count(self):
        with self.lock:
            running = [line.admitted is not None for _, line in self.pairs]
        return sum(running), len(running) - sum(running)


def percentile(values, percent):
    if not len(values) or not 0 < percent <= 100:
        raise ValueError("percentile")
    ordered = np.sort(np.asarray(values, float))
    share = np.arange(1, len(ordered) + 1) * 100
    return float(ordered[np.searchsorted(share, round(percent * len(ordered), 9))])


# --- 8.2 ---


def decades(low, high, steps):
    table = np.asarray(steps, float)
    rises = len(table) and (np.diff(table) > 0).all() and table[0] >= 1 and table[-1] < 10
    if not rises or not 0 < low <= high or np.isinf(high):
        raise ValueError("bounds")
    powers = np.arange(-20, 20)
    names = [f"{step:.12g}e{power}" for power in powers for step in table]
    found = np.array(names).astype(float)
    return tuple(found[(found >= low) & (found <= high)].tolist())


class Histogram:
    def __init__(self, bounds):
        edges = np.asarray(bounds, float)
        if not len(edges) or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise ValueError("bounds")
        self.bounds, self.sum = edges, 0.0
        self.counts = np.zeros(len(edges) + 1, np.int64)

    @property
    def count(self):
        return int(self.counts.sum())

    def observe(self, value):
        if not np.isfinite(value) or value < 0:
            raise ValueError("duration")
        self.counts[np.searchsorted(self.bounds, value, side="left")] += 1
        self.sum += value

    def cumulative(self):
        ends = [*self.bounds.tolist(), float("inf")]
        return [list(pair) for pair in zip(ends, self.counts.cumsum().tolist())]

    def merge(self, other):
        if not np.array_equal(self.bounds, other.bounds):
            raise ValueError("bounds")
        self.counts = self.counts + other.counts
        self.sum = self.sum + other.sum


def histogram_quantile(q, buckets):
    if not 0 < q <= 1 or len(buckets) < 2 or not np.isinf(buckets[-1][0]):
        raise ValueError("quantile")
    ends, counts = np.array(buckets, float).T
    if counts[-1] == 0:
        return None
    counts = np.concatenate([[0.0], counts])
    ends = np.concatenate([[0.0], ends])
    place = int(np.argmax(counts[1:] >= q * counts[-1])) + 1
    if np.isinf(ends[place]):
        return float(ends[-2])
    return float(
        np.interp(q * counts[-1], counts[place - 1 : place + 1], ends[place - 1 : place + 1])
    )


# --- 8.3 ---


class Metrics:
    """No client library: names, labels and values in a dict, and the text made from it."""

    def __init__(self, model_name, memory=memory_bytes):
        quoted = model_name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self.label, self.memory = f'model_name="{quoted}"', memory
        self.timings, self.values, self.lock, self.kv = Timings(), {}, Lock(), 0.0
        self.spread = {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}
        for name, (_, values, _) in COUNTERS.items():
            for value in values or ("",):
                self.values[name, value] = 0

    def watch(self, event):
        kind, reason = type(event).__name__, getattr(event, "reason", None)
        if (
            kind == "Finished"
            and reason not in REASONS
            or (kind == "Rejected" and reason not in REJECTIONS)
        ):
            raise ValueError(f"{reason} is unknown")
        with self.lock:
            line = self.timings.watch(event)
            if kind == "Finished":
                self.values["llm_requests_total", reason] += 1
                if line is not None:
                    self.spread["llm_e2e_request_latency_seconds"].observe(line.e2e)
            elif kind == "Rejected":
                self.values["llm_requests_rejected_total", reason] += 1
            elif kind == "Token":
                self.values["llm_generation_tokens_total", ""] += 1
                if line is not None and len(line.tokens) == 1:
                    self.spread["llm_time_to_first_token_seconds"].observe(line.first_token)
                elif line is not None:
                    self.spread["llm_inter_token_latency_seconds"].observe(line.gap)
            elif kind == "Admitted" and line is not None and not hasattr(line, "counted"):
                line.counted = True
                self.spread["llm_request_queue_seconds"].observe(line.queue)
                self.spread["llm_request_prompt_tokens"].observe(line.request.prompt_tokens)
                self.values["llm_prompt_tokens_total", ""] += line.request.prompt_tokens
            elif kind == "Sent":
                self.spread["llm_send_lag_seconds"].observe(event.lag)
            elif kind == "Stepped":
                self.spread["llm_step_seconds"].observe(event.seconds)
                self.kv = event.kv_used / event.kv_total
                for error in event.errors:
                    self.values["llm_step_errors_total", FAULTS.get(error, "other")] += 1

    def pause(self, seconds):
        with self.lock:
            self.spread["llm_gc_pause_seconds"].observe(seconds)

    def exposition(self):
        with self.lock:
            return "\n".join([*self.histograms(), *self.counters(), *self.gauges(), ""]).encode()

    def histograms(self):
        for name, spread in self.spread.items():
            yield f"# TYPE {name} histogram"
            for bound, count in spread.cumulative():
                end = "+Inf" if np.isinf(bound) else repr(bound)
                yield f'{name}_bucket{{{self.label},le="{end}"}} {count}'
            yield f"{name}_count{{{self.label}}} {spread.count}"
            yield f"{name}_sum{{{self.label}}} {spread.sum!r}"

    def counters(self):
        for name, (label, values, _) in COUNTERS.items():
            yield f"# TYPE {name} counter"
            for value in values or ("",):
                more = f',{label}="{value}"' if label else ""
                yield f"{name}{{{self.label}{more}}} {self.values[name, value]}"

    def gauges(self):
        running, waiting = self.timings.count()
        now = {"llm_requests_running": running, "llm_requests_waiting": waiting}
        now["llm_kv_cache_usage_ratio"] = self.kv
        for name in GAUGES:
            yield f"# TYPE {name} gauge"
            if name in now:
                yield f"{name}{{{self.label}}} {now[name]!r}"
        for kind, held in self.memory().items():
            yield f'llm_memory_bytes{{{self.label},kind="{kind}"}} {held}'


# --- 8.4 ---


def describe_error(error):
    """By recursion."""

    def told(one, depth):
        if one is None or depth == 0:
            return []
        walked = list(traceback.walk_tb(one.__traceback__))[-20:]
        frames = [
            f"{Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
            for frame, line in walked
        ]
        before = one.__cause__
        if before is None and not one.__suppress_context__:
            before = one.__context__
        return [{"error": type(one).__name__, "frames": frames}, *told(before, depth - 1)]

    return told(error, 5)


def request_record(timeline):
    gaps = np.sort(timeline.inter_token)
    fields = ["id", "stream", "prompt_tokens", "characters", "fingerprint", "max_tokens"]
    record = {name: getattr(timeline.request, name) for name in fields}
    record |= {name: getattr(timeline.end, name) for name in ("reason", "error", "tokens")}

    def rounded(value):
        return None if value is None else float(np.round(value, 6))

    record["inter_token_p50_s"] = rounded(percentile(gaps, 50) if len(gaps) else None)
    record["inter_token_max_s"] = rounded(gaps[-1] if len(gaps) else None)
    for name in ("queue", "first_token", "e2e"):
        record[f"{name}_s"] = rounded(getattr(timeline, name))
    return record | {"tokens_per_s": rounded(timeline.tokens_per_second)}


class DailyLog:
    """A text file, flushed after each line."""

    def __init__(self, folder, name, keep=7, now=time.time):
        self.folder, self.name, self.keep, self.now, self.lost = Path(folder), name, keep, now, 0
        self.lock, self.file, self.day = Lock(), None, None

    def write(self, record):
        at = utc(self.now())
        text = json.dumps({"at": at, **record})
        if re.search(r"NaN|Infinity", text):
            text = json.dumps(json.loads(text, parse_constant=lambda word: None))
        with self.lock:
            try:
                if self.day != at[:10]:
                    self.turn(at[:10])
                self.file.write(text + "\n")
                self.file.flush()
                return True
            except OSError:
                self.lost += 1
                self.end()
                return False

    def turn(self, day):
        self.end()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}-{day}.jsonl"
        cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
        self.file = open(path, "a", encoding="ascii", newline="\n")
        self.day = day
        if cut:
            self.file.write("\n")
        shape = rf"{re.escape(self.name)}-[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\.jsonl"
        older = [p for p in self.folder.glob("*.jsonl") if re.fullmatch(shape, p.name)]
        older = sorted(p for p in older if p.name != path.name)
        for p in older[::-1][self.keep - 1 :]:
            with contextlib.suppress(OSError):
                p.unlink()

    def end(self):
        file, self.file, self.day = self.file, None, None
        if file is not None:
            with contextlib.suppress(OSError):  # what is in the buffer still does not fit
                file.close()

    def close(self):
        with self.lock:
            self.end()


# --- 8.5 ---


class Window:
    """Keeps the events, and calculates when it is asked."""

    def __init__(self, now, limit=10_000, memory=memory_bytes):
        self.memory = memory
        self.start, self.limit, self.events, self.lock = now, limit, [], Lock()
        self.timings, self.kv = Timings(), None

    def watch(self, event):
        with self.lock:
            line = self.timings.watch(event)
            times = (line.first_token, line.gap) if line is not None else (None, None)
            self.events.append((event, *times))

    def take(self, now):
        with self.lock:
            taken, self.events = self.events, []
            seconds, self.start = now - self.start, now
            running, waiting = self.timings.count()
        by = {}
        for event, *times in taken:
            by.setdefault(type(event).__name__, []).append((event, *times))
        tokens = by.get("Token", [])
        first = [a for _, a, gap in tokens if gap is None and a is not None][-self.limit :]
        gaps = [gap for _, _, gap in tokens if gap is not None][-self.limit :]
        steps = [event for event, *_ in by.get("Stepped", [])]
        if steps:
            self.kv = steps[-1].kv_used / steps[-1].kv_total
        found = [seconds, running, waiting, self.kv, sum(self.memory().values())]
        found.append(None if seconds <= 0 else len(tokens) / seconds)
        found += [percentile(t, p) if t else None for t in (first, gaps) for p in (50, 95)]
        found += [len(by.get("Finished", [])), len(by.get("Rejected", []))]
        return dict(zip(FIELDS, [*found, sum(len(step.errors) for step in steps)]))


def format_line(now, record):
    shown = ["-" if record[n] is None else format(float(record[n]), "g") for n in FIELDS]
    return f"{utc(now)} llm " + " ".join(map("=".join, zip(FIELDS, shown)))


def read_line(line):
    found = re.findall(r"(\w+)=(-|[-+.0-9e]+)(?: |$)", line)
    names = [n for n, _ in found]
    start, middle, _ = line.partition(" llm ")
    if tuple(names) != FIELDS or not middle or not re.fullmatch(r"[-0-9T:.]{23}Z", start):
        return None
    try:
        record = {n: None if v == "-" else float(v) for n, v in found}
        at = dt.datetime.fromisoformat(start.replace("Z", "+00:00"))
    except ValueError:
        return None
    if " ".join(f"{n}={v}" for n, v in found) != line[len(start) + 5 :]:
        return None
    return {"time": at.timestamp()} | record


def read_series(text):
    numbered = list(enumerate(io.StringIO(text, newline="\n"), 1))
    records, damaged = [], []
    for number, line in numbered:
        bare = line.rstrip("\n").removesuffix("\r")
        record = read_line(bare) if line.endswith("\n") else None
        if record:
            records.append(record)
        elif " llm " in line:
            damaged.append(number)
    times = np.array([record["time"] for record in records])
    steps = np.diff(times)
    usual = float(np.median(steps)) if len(steps) else 0.0
    wide = np.flatnonzero(steps > 1.5 * usual) if usual > 0 else []
    gaps = [
        (times[i].item(), times[i + 1].item(), round(steps[i].item() / usual) - 1) for i in wide
    ]
    return Series(records, damaged, gaps)


# --- 8.6 ---


class PauseWatch:
    def __init__(self, clock=time.perf_counter, on_pause=lambda generation, seconds: None):
        self.clock, self.on_pause, self.began = clock, on_pause, []
        self.table = np.zeros((3, 3))

    seconds = property(lambda self: self.table[0].tolist())
    runs = property(lambda self: self.table[1].astype(int).tolist())
    longest = property(lambda self: self.table[2].tolist())

    def __call__(self, phase, info):
        if phase == "start":
            self.began.append(self.clock())
        elif self.began:
            taken = self.clock() - self.began.pop()
            self.table[:2, info["generation"]] += [taken, 1]
            self.table[2, info["generation"]] = max(self.table[2, info["generation"]], taken)
            self.on_pause(info["generation"], taken)

    def __enter__(self):
        if not any(call is self for call in gc.callbacks):
            gc.callbacks.insert(0, self)
        return self

    def __exit__(self, *error):
        while self in gc.callbacks:
            gc.callbacks.remove(self)


@contextmanager
def tamed(thresholds=(50_000, 20, 100)):
    old = gc.get_threshold()
    try:
        while gc.collect():
            pass
        gc.freeze()
        gc.set_threshold(*thresholds)
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*old)


# --- 8.7 ---


def increase(earlier, later, name):
    now = later.get(name, {})
    before = np.array([earlier.get(name, {}).get(key, 0.0) for key in now])
    values = np.array(list(now.values()), float)
    grown = values if (values < before).any() else values - before
    return dict(zip(now, grown.tolist()))


def quantile_between(earlier, later, name, q):
    grown = increase(earlier, later, f"{name}_bucket")
    if len(grown) == 0:
        return None
    ends, counts = np.array([float(key) for key in grown]), np.array(list(grown.values()))
    order = np.argsort(ends)
    return histogram_quantile(q, np.stack([ends[order], counts[order]], 1).tolist())


RULES = {
    "stuck_engine": [("steps running waiting", lambda n, u: n.steps == 0 < n.running + n.waiting)],
    "memory_leak": [("memory memory_before", lambda n, u: n.memory >= 1.1 * n.memory_before)],
    "collector_pauses": [("paused seconds", lambda n, u: n.paused >= 0.05 * n.seconds)],
    "garbled_output": [
        ("not_finite", lambda n, u: n.not_finite > 0),
        (
            "stop length",
            lambda n, u: (
                n.stop + n.length >= 10
                and n.length / (n.stop + n.length) >= 0.9
                and u.length / (u.stop + u.length) <= 0.5
            ),
        ),
    ],
    "out_of_memory": [("memory_errors", lambda n, u: n.memory_errors > 0)],
    "failing_requests": [("other_errors", lambda n, u: n.other_errors > 0)],
    "huge_request": [
        (
            "longest_prompt inter_token_p95",
            lambda n, u: (
                n.longest_prompt >= 4 * u.longest_prompt
                and n.inter_token_p95 >= 1.5 * u.inter_token_p95
            ),
        )
    ],
    "slow_machine": [
        (
            "step_p50 tokens prompt_tokens steps",
            lambda n, u: n.step_p50 >= 1.5 * u.step_p50 and n.work <= 1.2 * u.work,
        )
    ],
    "slow_client": [("send_lag_p95", lambda n, u: n.send_lag_p95 >= 1)],
    "queue_storm": [
        ("steps queue_full", lambda n, u: n.steps > 0 and n.queue_full > 0),
        (
            "steps waiting running queue_p95",
            lambda n, u: n.steps > 0 and n.waiting > n.running and n.queue_p95 >= 1,
        ),
    ],
    "full_cache": [("kv waiting", lambda n, u: n.kv >= 0.95 and n.waiting > 0)],
    "impatient_clients": [
        ("cancelled finished", lambda n, u: n.cancelled >= 5 and n.cancelled >= 0.5 * n.finished)
    ],
    "missed_deadlines": [
        ("timeout finished", lambda n, u: n.timeout > 0 and n.timeout >= 0.1 * n.finished)
    ],
}


class Known:
    """Figures as attributes; NaN, which is neither above nor below, where nothing is known."""

    def __init__(self, figures):
        self._figures = figures or {}

    def __getattr__(self, name):
        if name == "work":
            steps = self.steps if self.steps else np.nan
            return (self.tokens + self.prompt_tokens) / steps
        value = self._figures.get(name)
        return np.float64("nan") if value is None else np.float64(value)


def diagnose(now, usual=None):
    found = []
    with np.errstate(all="ignore"):
        for cause, parts in RULES.items():
            for names, holds in parts:
                names = names.split()
                if None in [now.get(name) for name in names] or not holds(Known(now), Known(usual)):
                    continue
                evidence = ", ".join("{} {:g}".format(name, now[name]) for name in names)
                found.append(Finding(cause, evidence, NEXT[cause]))
                break
    return found


# --- 8.8 ---


def read_benchmark(path):
    path = Path(path)
    data = path.read_bytes()
    try:
        whole = json.loads(str(data, "utf-8"))
    except (UnicodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {type(error).__name__}") from error
    kinds = {"machine": dict, "model": str, "settings": dict, "figures": dict}
    if not isinstance(whole, dict) or whole.get("schema") != "course.bench/1":
        raise ValueError(f"{path}: no benchmark")
    bad = [name for name, kind in kinds.items() if not isinstance(whole.get(name), kind)]
    if bad or not whole["figures"]:
        raise ValueError(f"{path}: {', '.join(bad) or 'figures'}")
    figures = {}
    for name, one in whole["figures"].items():
        try:
            values = one["values"]
            if isinstance(one["unit"], str) and one["better"] in {"lower", "higher"} and values:
                if {type(value) for value in values} <= {int, float} and np.isfinite(values).all():
                    numbers = tuple(np.array(values, float).tolist())
                    figures[name] = Figure(one["unit"], one["better"], numbers)
        except (KeyError, TypeError):
            pass
        if name not in figures:
            raise ValueError(f"{path}: figure {name!r}")
    return Benchmark(*(whole[name] for name in ("machine", "model", "settings")), figures)


def compare_figure(before, after, tolerance=0.05, level=0.05, count=1):
    share, sign = before.unit == "ratio", -1.0 if before.better == "higher" else 1.0
    runs = [np.array(one.values) for one in (before, after)]
    if not share:
        if min(run.min() for run in runs) <= 0:
            return Comparison(None, "unclear", "a logarithm of nothing")
        runs = [np.log(run) for run in runs]
    d = sign * (runs[1].mean() - runs[0].mean())
    change = float(d) if share else float(np.expm1(d))
    if min(run.size for run in runs) == 1:
        return Comparison(change, "unclear", "only one repetition")
    beyond = d - (0.01 if share else np.log1p(tolerance))
    freedom = runs[0].size + runs[1].size - 2
    squares = sum(((run - run.mean()) ** 2).sum() for run in runs)
    noise = np.sqrt(squares / freedom * sum(1 / run.size for run in runs))
    t = beyond / noise if noise > 0 else np.inf if beyond > 0 else -np.inf
    chance = [student_tail(float(t), freedom), student_tail(float(-t), freedom)]
    verdict = "worse" if chance[0] <= level / count else "fine" if chance[1] <= level else "unclear"
    return Comparison(change, verdict, f"t {t:.3g} at {freedom} degrees of freedom")


def judge_upgrade(before, after, tolerance=0.05, level=0.05):
    told = []
    for name in ("machine", "model", "settings"):
        one, other = vars(before)[name], vars(after)[name]
        told += [f"{name}: {one!r} is not {other!r}"] * (one != other)
    for name in [*before.figures, *(set(after.figures) - set(before.figures))]:
        kinds = [
            (side.figures[name].unit, side.figures[name].better) if name in side.figures else None
            for side in (before, after)
        ]
        told += [f"{name}: {kinds[0]} is not {kinds[1]}"] * (kinds[0] != kinds[1])
    if told:
        new = [name for name in after.figures if name not in before.figures]
        old = [text for text in told if text.partition(": ")[0] not in new]
        rest = {text.partition(": ")[0]: text for text in told}
        return Verdict("incomparable", [*old, *(rest[name] for name in new)], {})
    found = {
        name: compare_figure(one, after.figures[name], tolerance, level, len(before.figures))
        for name, one in before.figures.items()
    }
    for verdict, outcome in {"worse": "fail", "unclear": "unclear", "fine": "pass"}.items():
        names = [name for name, one in found.items() if one.verdict == verdict]
        if names:
            reasons = [f"{name}: {found[name].reason}" for name in names]
            return Verdict(outcome, reasons if outcome != "pass" else [], found)
