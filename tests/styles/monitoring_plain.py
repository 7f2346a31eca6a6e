"""Chapter 08 by someone who likes plain lists, sorts all, and takes strings apart by hand."""

import bisect
import collections
import contextlib
import datetime
import decimal
import gc
import json
import math
import os
import pathlib
import statistics
import threading
import time

import prometheus_client
from prometheus_client.core import GaugeMetricFamily

from solutions import events
from solutions.diagnose import NEXT, Finding
from solutions.json_log import utc
from solutions.metrics import COUNTERS, FAULTS, GAUGES, HISTOGRAMS, REJECTIONS, memory_bytes
from solutions.periodic_log import FIELDS, Series
from solutions.upgrade_gate import Benchmark, Comparison, Figure, Verdict, student_tail

REASONS = ["stop", "length", "cancelled", "timeout", "error"]

# --- 8.1 ---


class Timeline:
    def __init__(self, request, admitted=None, tokens=None, end=None):
        self.request, self.admitted, self.end = request, admitted, end
        self.tokens = [] if tokens is None else tokens

    def note(self, event):
        name = type(event).__name__
        if name == "Token":
            self.tokens += [event.at]
        if name == "Finished":
            self.end = event
        if name == "Admitted":
            self.admitted = event.at if self.admitted is None else self.admitted

    def _since(self, moment):
        if moment is None:
            return None
        return moment - self.request.at

    queue = property(lambda self: self._since(self.admitted))
    first_token = property(lambda self: self._since(next(iter(self.tokens), None)))
    e2e = property(lambda self: self._since(getattr(self.end, "at", None)))

    @property
    def gap(self):
        newest = self.tokens[-2:]
        return newest[1] - newest[0] if len(newest) == 2 else None

    @property
    def inter_token(self):
        gaps = []
        for place in range(1, len(self.tokens)):
            gaps.append(self.tokens[place] - self.tokens[place - 1])
        return gaps

    @property
    def tokens_per_second(self):
        if len(self.tokens) < 2 or self.tokens[0] == self.tokens[-1]:
            return None
        return (len(self.tokens) - 1) / (self.tokens[-1] - self.tokens[0])


class Timings:
    def __init__(self, limit=10_000):
        self.limit, self.forgotten = limit, 0
        self.waiting, self.running = collections.OrderedDict(), collections.OrderedDict()
        self.order = collections.OrderedDict()
        self.lock = threading.RLock()

    def watch(self, event):
        with self.lock:
            if isinstance(event, (events.Rejected, events.Stepped, events.Sent)):
                return None
            if isinstance(event, events.Arrived):
                self._remove(event.id)
                while len(self.order) >= self.limit:
                    self._remove(next(iter(self.order)))
                    self.forgotten += 1
                self.order[event.id] = self.waiting[event.id] = Timeline(event)
                return self.order[event.id]
            if event.id not in self.order:
                return None
            line = self.order[event.id]
            line.note(event)
            if isinstance(event, events.Admitted) and event.id in self.waiting:
                self.running[event.id] = self.waiting.pop(event.id)
            if isinstance(event, events.Finished):
                self._remove(event.id)
            return line

    def _remove(self, name):
        for group in (self.waiting, self.running, self.order):
            group.pop(name, None)

    def count(self):
        with self.lock:
            return [len(self.running), len(self.waiting)]


def percentile(values, percent):
    if percent != percent or percent <= 0 or percent > 100 or len(values) == 0:
        raise ValueError("percentile of what?")
    rank = decimal.Decimal(str(percent)) * len(values) / 100
    return sorted(values)[int(rank.to_integral_value(decimal.ROUND_CEILING)) - 1]


# --- 8.2 ---


def decades(low, high, steps):
    steps = list(steps)
    if steps != sorted(set(steps)) or not steps or not all(1 <= step < 10 for step in steps):
        raise ValueError("steps")
    if low <= 0 or high < low or high == math.inf:
        raise ValueError("range")
    found = []
    for power in range(-30, 30):
        for step in steps:
            bound = float(decimal.Decimal(str(step)).scaleb(power))
            if low <= bound <= high:
                found.append(bound)
    return found


class Histogram:
    def __init__(self, bounds):
        self.bounds = list(bounds)
        finite = [b for b in self.bounds if b == b and abs(b) != math.inf]
        if not self.bounds or finite != self.bounds or sorted(set(finite)) != finite:
            raise ValueError("bounds")
        self.upto, self.count, self.sum = [0] * len(self.bounds), 0, 0.0

    def observe(self, value):
        if value != value or value < 0 or value == math.inf:
            raise ValueError("value")
        for place in range(len(self.bounds)):
            self.upto[place] += value <= self.bounds[place]
        self.count += 1
        self.sum += value

    def cumulative(self):
        return [*zip(self.bounds, self.upto), (math.inf, self.count)]

    def merge(self, other):
        if list(other.bounds) != self.bounds:
            raise ValueError("bounds")
        for place, (_, count) in enumerate(other.cumulative()[:-1]):
            self.upto[place] += count
        self.count, self.sum = self.count + other.count, self.sum + other.sum


def histogram_quantile(q, buckets):
    if not (q > 0 and q <= 1) or len(buckets) < 2 or buckets[-1][0] != math.inf:
        raise ValueError("quantile")
    counts = [count for _, count in buckets]
    if counts[-1] == 0:
        return None
    rank = q * counts[-1]
    place = bisect.bisect_left(counts, rank)
    if place >= len(buckets) - 1:
        return float(buckets[-2][0])
    low, under = (buckets[place - 1][0], counts[place - 1]) if place else (0.0, 0.0)
    high, inside = buckets[place][0], counts[place] - under
    return low * (1 - (rank - under) / inside) + high * ((rank - under) / inside)


# --- 8.3 ---


class Metrics:
    """Gauges are collected, not set; children are made ahead and kept by name and label."""

    def __init__(self, model_name, memory=memory_bytes):
        self.registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self.model, self.memory, self.timings, self.kv = model_name, memory, Timings(), 0.0
        self.children = {}
        for name, (bounds, help) in HISTOGRAMS.items():
            metric = prometheus_client.Histogram(
                name, help, labelnames=("model_name",), registry=self.registry, buckets=bounds
            )
            self.children[name] = metric.labels(model_name=model_name)
        for name, (label, values, help) in COUNTERS.items():
            names = ("model_name",) if label is None else ("model_name", label)
            metric = prometheus_client.Counter(
                name.removesuffix("_total"), help, names, registry=self.registry
            )
            for value in values or [None]:
                given = (model_name,) if value is None else (model_name, value)
                self.children[name, value] = metric.labels(*given)
        self.registry.register(self)

    def collect(self):
        running, waiting = self.timings.count()
        values = {
            "llm_requests_running": {None: running},
            "llm_requests_waiting": {None: waiting},
            "llm_kv_cache_usage_ratio": {None: self.kv},
            "llm_memory_bytes": self.memory(),
        }
        for name, (label, help) in GAUGES.items():
            labels = ["model_name", label] if label else ["model_name"]
            family = GaugeMetricFamily(name, help, labels=labels)
            for value, amount in values[name].items():
                family.add_metric([self.model, value] if label else [self.model], amount)
            yield family

    def watch(self, event):
        name = type(event).__name__
        if name == "Finished" and event.reason not in REASONS:
            raise ValueError(f"no such reason: {event.reason}")
        if name == "Rejected" and event.reason not in REJECTIONS:
            raise ValueError(f"no such reason: {event.reason}")
        known = getattr(event, "id", None)
        again = name == "Admitted" and known in self.timings.running
        line = self.timings.watch(event)
        getattr(self, f"on_{name}", lambda event, line: None)(event, None if again else line)

    def on_Admitted(self, event, line):
        if line is not None:
            self.children["llm_request_queue_seconds"].observe(line.queue)
            self.children["llm_request_prompt_tokens"].observe(line.request.prompt_tokens)
            self.children["llm_prompt_tokens_total", None].inc(line.request.prompt_tokens)

    def on_Token(self, event, line):
        self.children["llm_generation_tokens_total", None].inc()
        if line is None:
            return
        if len(line.tokens) == 1:
            self.children["llm_time_to_first_token_seconds"].observe(line.first_token)
        else:
            self.children["llm_inter_token_latency_seconds"].observe(line.gap)

    def on_Finished(self, event, line):
        self.children["llm_requests_total", event.reason].inc()
        if line is not None:
            self.children["llm_e2e_request_latency_seconds"].observe(line.e2e)

    def on_Rejected(self, event, line):
        self.children["llm_requests_rejected_total", event.reason].inc()

    def on_Sent(self, event, line):
        self.children["llm_send_lag_seconds"].observe(event.lag)

    def on_Stepped(self, event, line):
        self.kv = event.kv_used / event.kv_total
        self.children["llm_step_seconds"].observe(event.seconds)
        for error in event.errors:
            kind = FAULTS[error] if error in FAULTS else "other"
            self.children["llm_step_errors_total", kind].inc()

    def pause(self, seconds):
        self.children["llm_gc_pause_seconds"].observe(seconds)

    def exposition(self):
        return prometheus_client.exposition.generate_latest(self.registry)


# --- 8.4 ---


def describe_error(error):
    told = []
    while error is not None and len(told) < 5:
        places, step = [], error.__traceback__
        while step is not None:
            code = step.tb_frame.f_code
            file = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
            places.append(f"{file}:{step.tb_lineno} {code.co_name}")
            step = step.tb_next
        told.append({"error": error.__class__.__name__, "frames": places[-20:]})
        if error.__cause__ is not None:
            error = error.__cause__
        elif error.__suppress_context__:
            error = None
        else:
            error = error.__context__
    return told


def request_record(timeline):
    gaps = sorted(timeline.inter_token)
    record = {"id": timeline.request.id, "reason": timeline.end.reason}
    for name in ("stream", "prompt_tokens", "characters", "fingerprint", "max_tokens"):
        record[name] = getattr(timeline.request, name)
    record["tokens"], record["error"] = timeline.end.tokens, timeline.end.error
    for name, value in (
        ("queue_s", timeline.queue),
        ("first_token_s", timeline.first_token),
        ("inter_token_p50_s", gaps[(len(gaps) - 1) // 2] if gaps else None),
        ("inter_token_max_s", gaps[-1] if gaps else None),
        ("e2e_s", timeline.e2e),
        ("tokens_per_s", timeline.tokens_per_second),
    ):
        record[name] = value if value is None else round(value, 6)
    return record


class DailyLog:
    """Opens the file for each line, with the calls of the system."""

    def __init__(self, folder, name, keep=7, now=time.time):
        self.folder, self.name, self.keep, self.now, self.lost = str(folder), name, keep, now, 0
        self.lock, self.swept = threading.Lock(), None

    def write(self, record):
        with self.lock:
            try:
                return self._write(record)
            except OSError:
                self.lost += 1
                return False

    def _write(self, record):
        at = utc(self.now())
        text = json.dumps(self._plain({"at": at} | dict(record)), allow_nan=False)
        os.makedirs(self.folder, exist_ok=True)
        file = f"{self.name}-{at[:10]}.jsonl"
        path = os.path.join(self.folder, file)
        whole = True
        if os.path.exists(path):
            with open(path, "rb") as before:
                data = before.read()
            whole = data == b"" or data.endswith(b"\n")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            line = ("" if whole else "\n") + text + "\n"
            if os.write(handle, line.encode()) != len(line):
                raise OSError("not all of it")
        finally:
            os.close(handle)
        if self.swept != file:
            self._sweep(file)
            self.swept = file
        return True

    def _sweep(self, current):
        mine = []
        for file in os.listdir(self.folder):
            start, day, end = file[: len(self.name) + 1], file[len(self.name) + 1 : -6], file[-6:]
            with contextlib.suppress(ValueError):
                datetime.date.fromisoformat(day)
                if start == f"{self.name}-" and end == ".jsonl" and len(day) == 10:
                    mine.append(file)
        mine.remove(current)
        mine.sort(reverse=True)
        for file in mine[self.keep - 1 :]:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self.folder, file))

    def _plain(self, value):
        if type(value) is float:
            return value if value - value == 0 else None
        if isinstance(value, dict):
            return dict(zip(value.keys(), map(self._plain, value.values())))
        if isinstance(value, (list, tuple)):
            return list(map(self._plain, value))
        return value

    def close(self):
        pass


# --- 8.5 ---


class Window:
    def __init__(self, now, limit=10_000, memory=memory_bytes):
        self.memory = memory
        self.begin, self.limit, self.kv, self.lines = now, limit, None, Timings()
        self.happened, self.lock = collections.Counter(), threading.Lock()
        self.firsts, self.gaps = [], []

    def watch(self, event):
        with self.lock:
            line = self.lines.watch(event)
            self.happened[type(event).__name__] += 1
            if isinstance(event, events.Stepped):
                self.kv = event.kv_used / event.kv_total
                self.happened["errors"] += len(event.errors)
            if isinstance(event, events.Token) and line is not None:
                if line.gap is None:
                    self.firsts = [*self.firsts, line.first_token][-self.limit :]
                else:
                    self.gaps = [*self.gaps, line.gap][-self.limit :]

    def take(self, now):
        with self.lock:
            seconds, happened, self.begin = now - self.begin, self.happened, now
            firsts, gaps, self.firsts, self.gaps = self.firsts, self.gaps, [], []
            self.happened = collections.Counter()
            running, waiting = self.lines.count()
        values = [seconds, running, waiting, self.kv, sum(self.memory().values())]
        values.append(happened["Token"] / seconds if seconds else None)
        for times in (firsts, gaps):
            for percent in (50, 95):
                values.append(percentile(times, percent) if times else None)
        values += [happened["Finished"], happened["Rejected"], happened["errors"]]
        return {name: value for name, value in zip(FIELDS, values)}


def format_line(now, record):
    words = [utc(now), "llm"]
    for name in FIELDS:
        words.append(name + "=" + ("-" if record[name] is None else "%g" % record[name]))
    return " ".join(words)


def read_line(line):
    words = line.split(" ")
    if len(words) != len(FIELDS) + 2 or words[1] != "llm":
        return None
    record = {}
    try:
        if len(words[0]) != 24:
            return None
        moment = datetime.datetime.strptime(words[0] + "+0000", "%Y-%m-%dT%H:%M:%S.%fZ%z")
        record["time"] = moment.timestamp()
        for name, word in zip(FIELDS, words[2:]):
            left, middle, right = word.partition("=")
            if left != name or not middle:
                return None
            record[name] = None if right == "-" else float(right)
            if record[name] is not None and not math.isfinite(record[name]):
                return None
    except ValueError:
        return None
    return record


def read_series(text):
    records, damaged, gaps = [], [], []
    pieces = text.split("\n")
    for place, piece in enumerate(pieces):
        record = read_line(piece[:-1] if piece.endswith("\r") else piece)
        if record is not None and place < len(pieces) - 1:
            records.append(record)
        elif " llm " in piece:
            damaged.append(place + 1)
    steps = [records[i + 1]["time"] - records[i]["time"] for i in range(len(records) - 1)]
    usual = statistics.median(steps) if steps else 0
    for place, step in enumerate(steps):
        if usual > 0 and step > 1.5 * usual:
            around = records[place]["time"], records[place + 1]["time"]
            gaps.append((*around, round(step / usual) - 1))
    return Series(records, damaged, gaps)


# --- 8.6 ---


class PauseWatch:
    def __init__(self, clock=time.perf_counter, on_pause=None):
        self.clock, self.on_pause, self.open = clock, on_pause, []
        self.times = {0: [], 1: [], 2: []}
        self.runs, self.seconds, self.longest = [0, 0, 0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]

    def __call__(self, phase, info):
        if phase == "start":
            self.open = [self.clock()]
            return
        if not self.open:
            return
        generation = info["generation"]
        taken = self.clock() - self.open.pop()
        self.runs[generation] += 1
        self.seconds[generation] += taken
        if taken > self.longest[generation]:
            self.longest[generation] = taken
        if self.on_pause is not None:
            self.on_pause(generation, taken)

    def __enter__(self):
        self.__exit__()
        gc.callbacks.append(self)
        return self

    def __exit__(self, *ignored):
        gc.callbacks[:] = [call for call in gc.callbacks if call is not self]


class tamed:
    def __init__(self, thresholds=(50_000, 20, 100)):
        self.thresholds = thresholds

    def __enter__(self):
        self.before = gc.get_threshold()
        for generation in (0, 1, 2):
            gc.collect(generation)
        gc.freeze()
        gc.set_threshold(*self.thresholds)

    def __exit__(self, *ignored):
        gc.unfreeze()
        gc.set_threshold(*self.before)
        return False


# --- 8.7 ---


def increase(earlier, later, name):
    if name not in later:
        return {}
    pairs = {key: (earlier.get(name, {}).get(key, 0.0), now) for key, now in later[name].items()}
    fell = any(now < before for before, now in pairs.values())
    return {key: now if fell else now - before for key, (before, now) in pairs.items()}


def quantile_between(earlier, later, name, q):
    grown = increase(earlier, later, name + "_bucket")
    if not grown:
        return None
    order = sorted(grown, key=float)
    return histogram_quantile(q, [[float(bound), grown[bound]] for bound in order])


def diagnose(now, usual=None):
    def get(name, figures=now):
        return None if figures is None else figures.get(name)

    def known(*names):
        return all(get(name) is not None for name in names)

    def tell(*names):
        return ", ".join(f"{name} {get(name):g}" for name in names)

    def times(name, factor):
        return get(name, usual) is not None and get(name) >= factor * get(name, usual)

    told = {}
    if known("steps", "running", "waiting"):
        if get("steps") == 0 and get("running") + get("waiting") > 0:
            told["stuck_engine"] = tell("steps", "running", "waiting")
    if known("memory", "memory_before") and get("memory") >= 1.1 * get("memory_before"):
        told["memory_leak"] = tell("memory", "memory_before")
    if known("paused", "seconds") and get("paused") >= 0.05 * get("seconds"):
        told["collector_pauses"] = tell("paused", "seconds")
    if known("not_finite") and get("not_finite") > 0:
        told["garbled_output"] = tell("not_finite")
    elif known("stop", "length") and get("stop", usual) is not None:
        if get("length", usual) is not None:
            answers = get("stop") + get("length")
            before = get("stop", usual) + get("length", usual)
            if answers >= 10 and before > 0:
                if get("length") / answers >= 0.9 and get("length", usual) / before <= 0.5:
                    told["garbled_output"] = tell("stop", "length")
    if known("memory_errors") and get("memory_errors") > 0:
        told["out_of_memory"] = tell("memory_errors")
    if known("other_errors") and get("other_errors") > 0:
        told["failing_requests"] = tell("other_errors")
    if known("longest_prompt", "inter_token_p95"):
        if times("longest_prompt", 4) and times("inter_token_p95", 1.5):
            told["huge_request"] = tell("longest_prompt", "inter_token_p95")
    work = ("tokens", "prompt_tokens", "steps")
    if known("step_p50", *work) and all(get(name, usual) is not None for name in work):
        if times("step_p50", 1.5) and get("steps") and get("steps", usual):
            before = (get("tokens", usual) + get("prompt_tokens", usual)) / get("steps", usual)
            if (get("tokens") + get("prompt_tokens")) / get("steps") <= 1.2 * before:
                told["slow_machine"] = tell("step_p50", *work)
    if known("send_lag_p95") and not get("send_lag_p95") < 1:
        told["slow_client"] = tell("send_lag_p95")
    if known("steps", "queue_full") and get("steps") > 0 and get("queue_full") > 0:
        told["queue_storm"] = tell("steps", "queue_full")
    elif known("steps", "waiting", "running", "queue_p95") and get("steps") > 0:
        if get("waiting") > get("running") and get("queue_p95") >= 1:
            told["queue_storm"] = tell("steps", "waiting", "running", "queue_p95")
    if known("kv", "waiting") and get("kv") >= 0.95 and get("waiting") > 0:
        told["full_cache"] = tell("kv", "waiting")
    if known("cancelled", "finished"):
        if get("cancelled") >= 5 and 2 * get("cancelled") >= get("finished"):
            told["impatient_clients"] = tell("cancelled", "finished")
    if known("timeout", "finished") and 0 < get("timeout") >= 0.1 * get("finished"):
        told["missed_deadlines"] = tell("timeout", "finished")
    return [Finding(cause, told[cause], NEXT[cause]) for cause in NEXT if cause in told]


# --- 8.8 ---


def read_benchmark(path):
    def wrong(what):
        return ValueError(f"{pathlib.Path(path).name}: {what}")

    with open(path, "rb") as file:
        data = file.read()
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise wrong("no JSON") from None
    if type(found) is not dict or found.get("schema") != "course.bench/1":
        raise wrong("schema")
    for name in ("machine", "settings", "figures"):
        if type(found.get(name)) is not dict:
            raise wrong(name)
    if type(found.get("model")) is not str:
        raise wrong("model")
    if len(found["figures"]) == 0:
        raise wrong("figures")
    figures = {}
    for name, one in found["figures"].items():
        good = type(one) is dict and type(one.get("unit")) is str
        good = good and one.get("better") in ["lower", "higher"]
        good = good and type(one.get("values")) is list and len(one["values"]) > 0
        if not good:
            raise wrong(name)
        for value in one["values"]:
            if type(value) not in (float, int) or value - value != 0:
                raise wrong(name)
        figures[name] = Figure(one["unit"], one["better"], tuple(v * 1.0 for v in one["values"]))
    return Benchmark(found["machine"], found["model"], found["settings"], figures)


def compare_figure(before, after, tolerance=0.05, level=0.05, count=1):
    def score(value):
        size = value if before.unit == "ratio" else math.log(value)
        return size if before.better == "lower" else -size

    try:
        a, b = list(map(score, before.values)), list(map(score, after.values))
    except ValueError:
        return Comparison(None, "unclear", "there is no logarithm of that")
    d = sum(b) / len(b) - sum(a) / len(a)
    if before.unit == "ratio":
        change, margin = d, 0.01
    else:
        change, margin = math.exp(d) - 1, math.log(1 + tolerance)
    if len(a) == 1 or len(b) == 1:
        return Comparison(change, "unclear", "measured only once")
    freedom = len(a) + len(b) - 2
    spread = statistics.variance(a) * (len(a) - 1) + statistics.variance(b) * (len(b) - 1)
    noise = math.sqrt(spread / freedom * (1 / len(a) + 1 / len(b)))
    if noise == 0:
        verdict = "worse" if d > margin else "fine"
    elif student_tail((d - margin) / noise, freedom) * count <= level:
        verdict = "worse"
    elif student_tail((margin - d) / noise, freedom) <= level:
        verdict = "fine"
    else:
        verdict = "unclear"
    return Comparison(change, verdict, f"changed by {change}, noise {noise}")


def judge_upgrade(before, after, tolerance=0.05, level=0.05):
    reasons = []
    for name in ("machine", "model", "settings"):
        if getattr(before, name) != getattr(after, name):
            reasons.append(f"{name}: differs")
    names = list(before.figures) + [n for n in after.figures if n not in before.figures]
    for name in names:
        pair = [side.figures[name] for side in (before, after) if name in side.figures]
        if len(pair) < 2:
            reasons.append(f"{name}: not in both")
        elif pair[0].unit != pair[1].unit or pair[0].better != pair[1].better:
            reasons.append(f"{name}: another kind of figure")
    if reasons:
        return Verdict("incomparable", reasons, {})
    found, by = {}, collections.defaultdict(list)
    for name in names:
        one = compare_figure(
            before.figures[name], after.figures[name], tolerance, level, len(names)
        )
        found[name] = one
        by[one.verdict].append(f"{name}: {one.reason}")
    if by["worse"]:
        return Verdict("fail", by["worse"], found)
    return Verdict("unclear" if by["unclear"] else "pass", by["unclear"], found)
