"""Chapter 07 by someone who likes queues, small classes and match."""

import asyncio
import json
import queue
import re
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from solutions.api_error import ApiError, ClientGone
from solutions.api_request import ApiRequest
from solutions.engine_thread import EngineDead
from solutions.lifecycle import Phase
from solutions.responses import Head, Piece, Usage
from solutions.results import Kept
from solutions.sampling_params import RANGES, SamplingParams
from solutions.streaming import Job

THEIRS = Head, Usage, Job  # scenarios look for them here

# --- 7.1 ---

NUMBERS = {name: name for name in RANGES if name not in ("max_tokens", "logprobs")}
SHARED = {*NUMBERS, "stop", "max_tokens", "model", "n", "stream", "stream_options", "logprobs"}
SHARED |= {"ignore_eos", "user", "metadata", "service_tier", "safety_identifier"}
SHARED |= {"prompt_cache_key"}
CHAT_ONLY = {"messages", "max_completion_tokens", "top_logprobs"}
HARMLESS_VALUES = {
    "chat": {
        "tools": ["[]"],
        "tool_choice": ['"none"', '"auto"'],
        "parallel_tool_calls": ["true", "false"],
        "functions": ["[]"],
        "function_call": ['"none"', '"auto"'],
        "response_format": ['{"type": "text"}'],
        "logit_bias": ["{}"],
        "modalities": ['["text"]'],
        "store": ["false"],
    }
    | dict.fromkeys(
        ("audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"), ()
    ),
    "completion": {
        "best_of": ["1"],
        "echo": ["false"],
        "suffix": ['""'],
        "logit_bias": ["{}"],
    },
}


class Invalid(ApiError):
    def __init__(self, param, message, code="invalid_value", status=400):
        super().__init__(status, f"{param}: {message}", param, code)


class Body:
    def __init__(self, text, endpoint, model):
        self.endpoint, self.model = endpoint, model
        self.fields = {k: v for k, v in load(text).items() if v is not None}

    def get(self, name, *kinds, default=None):
        value = self.fields.get(name)
        if value is None:
            return default
        if type(value) not in kinds:
            raise Invalid(name, f"should not be {value!a:.50}")
        return value

    def names(self):
        own = CHAT_ONLY if self.endpoint == "chat" else {"prompt"}
        unsupported = HARMLESS_VALUES[self.endpoint]
        for name, value in self.fields.items():
            if name in unsupported:
                if json.dumps(value) not in unsupported[name]:
                    allowed = " or ".join(["null", *unsupported[name]])
                    raise Invalid(name, f"only {allowed}", "unsupported_parameter")
            elif name not in SHARED | own:
                near = nearest(name, SHARED | own | set(unsupported))
                raise Invalid(name, f"unknown; near {near}", "unknown_parameter")

    def request(self):
        self.names()
        if self.get("model", str, default=self.model) != self.model:
            said = f"{self.fields['model']!a} is not {self.model}"
            raise Invalid("model", said, "model_not_found", 404)
        n = self.get("n", int, default=1)
        if n < 1:
            raise Invalid("n", "at least 1")
        prompts, check = self.prompts()
        if len(prompts) * n > 16:
            raise Invalid("n" if len(prompts) < 17 else "prompt", f"{len(prompts)} x {n} > 16")
        check()
        stream = self.get("stream", bool, default=False)
        eos = self.get("ignore_eos", bool, default=False)
        usage = self.usage(stream)
        return ApiRequest(self.endpoint, prompts, self.params(), n, stream, usage, eos)

    def prompts(self):
        name = "messages" if self.endpoint == "chat" else "prompt"
        if name not in self.fields:
            raise Invalid(name, "is needed", "missing_required_parameter")
        found = self.fields[name]
        if self.endpoint == "chat":
            return [conversation(found)], int
        match found:
            case [str() | list(), *_]:
                return found, lambda: [prompt(p, f"prompt[{i}]") for i, p in enumerate(found)]
        return [found], lambda: prompt(found, "prompt")

    def usage(self, stream):
        options = self.get("stream_options", dict)
        if options is None:
            return False
        if not stream:
            raise Invalid("stream_options", "without stream")
        for name, value in options.items():
            if name not in {"include_usage", "include_obfuscation"} or (
                value is not None and value is not True and value is not False
            ):
                raise Invalid(f"stream_options.{name}", "what?")
        return options.get("include_usage") is True

    def params(self):
        wanted = {name: self.fields.get(name) for name in NUMBERS}
        for name, value in wanted.items():
            checked(name, name, value)
        count = "max_tokens"
        if self.endpoint == "chat":
            both = [self.fields[k] for k in ("max_tokens", "max_completion_tokens")
                    if k in self.fields]  # fmt: skip
            if len(both) == 2 and repr(both[0]) != repr(both[1]):
                raise Invalid("max_completion_tokens", f"{both[0]} is not {both[1]}")
            if "max_tokens" not in self.fields:
                count = "max_completion_tokens"
            logprobs = self.get("logprobs", bool)
            top = self.fields.get("top_logprobs")
            if top is not None and not logprobs:
                raise Invalid("top_logprobs", "needs logprobs")
            checked("top_logprobs", "logprobs", top)
            wanted["logprobs"] = (top or 0) if logprobs else None
        else:
            wanted["logprobs"] = self.fields.get("logprobs")
            checked("logprobs", "logprobs", wanted["logprobs"])
        wanted["max_tokens"] = self.fields.get(count)
        checked(count, "max_tokens", wanted["max_tokens"])
        return replace(SamplingParams(**wanted), stop=self.stops())

    def stops(self):
        stop = self.get("stop", str, list, default=[])
        try:
            stops = SamplingParams(stop=stop).stop
        except ValueError as error:
            raise Invalid("stop", str(error)) from None
        for i, text in enumerate(stops):
            paired(text, "stop" if isinstance(stop, str) else f"stop[{i}]")
        return stops


def checked(name, field, value):
    if value is not None:
        try:
            SamplingParams(**{field: value})
        except ValueError as error:
            raise Invalid(name, str(error)) from None


def load(text):
    def no(constant):
        raise ValueError(constant)

    try:
        found = json.loads(text if isinstance(text, str) else text.decode(), parse_constant=no)
        return dict(**found)
    except (ValueError, TypeError, RecursionError) as error:
        raise ApiError(400, f"no JSON: {error!r:.100}", code="invalid_json") from None


def nearest(name, names):
    def shared(other):
        pairs = {a + b for a, b in pairwise(name)}
        return len(pairs & {a + b for a, b in pairwise(other)}) - abs(len(other) - len(name)) / 2

    return max(sorted(names), key=shared)


def paired(text, where):
    if re.search("[\ud800-\udfff]", text):
        raise Invalid(where, "half a character")


def conversation(messages):
    match messages:
        case [_, *_]:
            return [turn(m, f"messages[{i}]") for i, m in enumerate(messages)]
    raise Invalid("messages", "a list, not empty")


def turn(message, at):
    if not isinstance(message, dict):
        raise Invalid(at, "an object")
    match message.get("role"):
        case "system" | "developer":
            role = "system"
        case ("user" | "assistant") as role:
            pass
        case other:
            roles = "system, user or assistant"
            raise Invalid(f"{at}.role", f"{roles}, not {other!a:.50}")
    for name in ("tool_calls", "function_call"):
        if message.get(name, None) is not None:
            raise Invalid(f"{at}.{name}", name, "unsupported_parameter")
    text = ""
    match message.get("content"):
        case str() as text:
            pass
        case list() as parts:
            for part in parts:
                match part:
                    case {"type": "text", "text": str() as more}:
                        text += more
                    case _:
                        raise Invalid(f"{at}.content", "only texts")
        case _:
            raise Invalid(f"{at}.content", "a text or parts")
    paired(text, f"{at}.content")
    return {"role": role, "content": text}


def prompt(value, where):
    match value:
        case "" | []:
            raise Invalid(where, "is empty")
        case str():
            paired(value, where)
        case list():
            if {type(i) for i in value} != {int}:
                raise Invalid(where, "ids only")
        case _:
            raise Invalid(where, "a text or ids")


def parse_body(body, endpoint, model):
    return Body(body, endpoint, model).request()


# --- 7.2 ---


class Shape:
    def __init__(self, head, token_bytes, chunk):
        self.head, self.bytes_of, self.chunk = head, token_bytes, chunk
        self.chat = head.endpoint == "chat"

    def body(self, *choices, **more):
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion" + ".chunk" * self.chunk
        shape = {"id": self.head.id, "object": kind, "created": self.head.created}
        return shape | {"model": self.head.model, "choices": [*choices]} | more

    def choice(self, piece, key, value):
        logprobs = None if self.bytes_of is None else self.logprobs(piece)
        end = piece.finish_reason
        return {"index": piece.index, key: value, "logprobs": logprobs, "finish_reason": end}

    def logprobs(self, piece):
        if self.chat:
            return {
                "content": [
                    {**self.entry(one.token, one.value), "top_logprobs": self.entries(one.top)}
                    for one in piece.logprobs
                ]
            }
        texts = [self.text(one.token) for one in piece.logprobs]
        return {
            "tokens": texts,
            "token_logprobs": [least(one.value) for one in piece.logprobs],
            "top_logprobs": [
                {self.text(token): least(value) for token, value in one.top.items()}
                for one in piece.logprobs
            ],
            "text_offset": [*piece.offsets],
        }

    def text(self, token):
        return str(self.bytes_of(token), "utf-8", "replace")

    def entry(self, token, value):
        data = list(self.bytes_of(token))
        return {"token": self.text(token), "logprob": least(value), "bytes": data}

    def entries(self, top):
        return [self.entry(*pair) for pair in top.items()]


def least(value):
    return value if value > -9999 else -9999.0


def numbers(usage):
    both = usage.prompt_tokens + usage.completion_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": both,
    }


def response_body(head, answers, usage, token_bytes=None):
    shape = Shape(head, token_bytes, False)
    made = []
    for one in answers:
        message = {"role": "assistant", "content": one.text}
        pair = ("message", message) if shape.chat else ("text", one.text)
        made.append(shape.choice(one, *pair))
    return shape.body(*made, usage=numbers(usage))


def chunk_body(head, piece, token_bytes=None, first=False):
    shape = Shape(head, token_bytes, True)
    if not shape.chat:
        return shape.body(shape.choice(piece, "text", piece.text))
    delta = {}
    if first:
        delta |= {"role": "assistant"}
    if first or len(piece.text):
        delta |= {"content": piece.text}
    return shape.body(shape.choice(piece, "delta", delta))


def usage_chunk(head, usage):
    return Shape(head, None, True).body(usage=numbers(usage))


def error_body(error):
    inside = {"message": error.message, "type": error.type}
    return {"error": {**inside, "param": error.param, "code": error.code}}


def to_json(body):
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):x}", text).encode()


def encode_event(body):
    return b"data: %s\n\n" % (to_json(body) if body is not None else b"[DONE]")


# --- 7.3 ---


class EngineThread:
    def __init__(self, batcher, on_step=None, clock=time.monotonic):
        self._batcher, self._told, self._clock = batcher, on_step or (lambda *_: None), clock
        self._bell, self._door = queue.SimpleQueue(), threading.Lock()
        self._requests, self._closed = {}, False
        self.error, self.began = None, None
        self._thread = threading.Thread(target=self._live, daemon=True)

    is_alive = property(lambda self: self._thread.is_alive() and not self._closed)

    def start(self):
        self._thread.start()

    def submit(self, request):
        with self._door:
            if self._closed:
                raise EngineDead(repr(self.error))
            self._batcher.submit(request)
            self._requests[id(request)] = request
        self._bell.put("work")

    def cancel(self, request):
        self._batcher.cancel(request)
        self._bell.put("work")

    def stop(self, timeout=None):
        self._closed = True
        self._bell.put("stop")
        if not self._thread.ident:
            self._bury(None)
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _live(self):
        error = None
        try:
            while not self._closed:
                self._bell.get()
                with suppress(queue.Empty):
                    while True:
                        self._bell.get_nowait()
                while not (self._closed or self._batcher.idle):
                    self._one()
        except BaseException as problem:
            error = problem
        self._bury(error)

    def _one(self):
        began = self._clock()
        self.began = began
        step = self._batcher.step()
        self.began = None
        self._told(step, self._clock() - began)
        with self._door:
            gone = [key for key, r in self._requests.items() if r.finish_reason]
            for key in gone:
                del self._requests[key]

    def _bury(self, error):
        with self._door:
            self._closed, self.error, self.began = True, error, None
            left = [r for r in self._requests.values() if not r.finish_reason]
            self._requests.clear()
        reason = "cancelled"
        if error is not None:
            reason = "error"
            if not isinstance(error, Exception):
                error = RuntimeError(f"ended by {type(error).__name__}")
        for request in left:
            request.finish(reason, error)
            if request.on_finish is not None:
                request.on_finish(request)


# --- 7.4 ---


class Channel:
    def __init__(self, call_soon):
        self._call, self._lock, self._event = call_soon, threading.Lock(), asyncio.Event()
        self._texts, self._rung = {}, False

    def put(self, piece):
        with self._lock:
            row = self._texts.setdefault(piece.index, [[], [], [], None])
            row[0] += piece.offsets
            row[1] = ["".join([*row[1], piece.text])]
            row[2].extend(piece.logprobs)
            row[3] = piece.finish_reason
            ring, self._rung = not self._rung, True
        if ring:
            try:
                self._call(self._event.set)
            except RuntimeError:
                self._all()

    async def get(self):
        await self._event.wait()
        return self._all()

    def _all(self):
        with self._lock:
            self._event.clear()
            rows, self._texts, self._rung = self._texts, {}, False
        return [Piece(i, "".join(t), n, end, o) for i, (o, t, n, end) in rows.items()]


def listen(request, index, channel, stream, matcher):
    whole, state = Piece(index), defaultdict(int, notes=[], places=[])
    wants = request.params.logprobs is not None

    def out(text, reason=None):
        piece = Piece(index, text, state["notes"], reason, state["places"])
        whole.join(replace(piece, logprobs=list(piece.logprobs)))
        state["notes"], state["places"] = [], []
        channel.put(piece)

    def on_token(token):
        text = stream.add(token)
        if wants:
            state["notes"].append(request.logprobs[len(request.logprobs) - 1])
            state["places"] += [state["read"]]
            state["read"] += len(text)
        shown = matcher.add(text)
        if shown:
            out(shown)
        return True if matcher.found else None

    def on_finish(over):
        text = matcher.add(stream.flush()) + matcher.flush()
        reasons = {"length": "stop"} if matcher.found else {}
        out(text, reasons.get(over.finish_reason, over.finish_reason))

    request.on_token = on_token
    request.on_finish = on_finish
    return whole


# --- 7.5 ---


class Pace:
    def __init__(self):
        self.first_to_last = []

    def note(self, now):
        self.first_to_last.append(now)
        if len(self.first_to_last) > 16:
            self.first_to_last.pop(0)

    def wait(self, ahead, now):
        times = self.first_to_last[:]
        if len(times) < 2:
            return 1
        average = (times[-1] - times[0]) / (len(times) - 1)
        if average < now - times[-1]:
            average = (now - times[0]) / len(times)
        exact = ahead * average
        up = int(exact) + (exact > int(exact))
        return sorted([1, up, 60])[1]


class Door:
    def __init__(self, bound, waiting, pace, clock):
        self.__dict__.update(bound=bound, waiting=waiting, pace=pace, clock=clock, coming=0)

    def enter(self, places=1):
        door = self

        class Entry:
            def __enter__(self):
                if places > door.bound:
                    raise Invalid("n", f"{places} > {door.bound}")
                there = door.coming + door.waiting()
                if there + places > door.bound:
                    seconds = door.pace.wait(there, door.clock())
                    raise ApiError(503, f"{there} wait", None, "queue_full", seconds)
                door.coming += places

            def __exit__(self, kind, error, trace):
                door.coming -= places

        return Entry()


def failure(request, retry_after):
    later = dict(param=None, retry_after=retry_after)
    reason = request.finish_reason
    if reason == "cancelled":
        return ApiError(503, "ended early", code=reason, **later)
    if reason == "timeout":
        if request.admitted is not None:
            return ApiError(504, "out of time", None, reason)
        return ApiError(503, "waited in vain", code="queue_timeout", **later)
    if reason == "error":
        name = str(type(request.error)).split("'")[1].split(".")[-1]
        return ApiError(500, f"a fault: {name}", None, "engine_error")
    return None


# --- 7.6 ---


class ResultStore:
    def __init__(self, seconds, most, size, clock):
        self._seconds, self._most, self._size, self._clock = seconds, most, size, clock
        self._all = {}

    def _sweep(self):
        now = self._clock()
        for id, kept in list(self._all.items()):
            if kept and kept.until <= now:
                self._all.pop(id)

    def _sizes(self):
        self._sweep()
        return [len(kept.body) for kept in self._all.values() if kept]

    def __len__(self):
        return len(self._sizes())

    @property
    def bytes(self):
        return sum(self._sizes())

    def begin(self, id):
        self._all[id] = None

    def forget(self, id):
        if self._all.get(id, "") is None:
            del self._all[id]

    def keep(self, id, status, body):
        self._all.pop(id, None)
        if len(body) > self._size:
            return
        self._all[id] = Kept(status=status, body=body, until=self._clock() + self._seconds)
        while len(self) > self._most or self.bytes > self._size:
            self._all.pop(next(id for id, kept in self._all.items() if kept))

    def get(self, id):
        self._sweep()
        if id not in self._all:
            return None
        return self._all[id] or "running"


# --- 7.7 ---


class Left:
    """Counts the answers that are not over, and raises what a client must be told."""

    def __init__(self, job):
        self.job, self.open = job, set(range(len(job.requests)))

    def take(self, piece):
        if piece.finish_reason is not None:
            self.open.remove(piece.index)
            problem = self.job.failure(self.job.requests[piece.index])
            if problem is not None:
                raise problem


async def collect(job):
    left = Left(job)
    try:
        while left.open:
            pieces = await job.channel.get()
            for piece in pieces:
                left.take(piece)
        return response_body(job.head, job.answers, job.usage, job.token_bytes)
    except BaseException:
        raise
    finally:
        job.cancel()


async def stream(job, quiet):
    left, silent, roles = Left(job), True, set()
    try:
        while left.open:
            try:
                async with asyncio.timeout(quiet):
                    pieces = await job.channel.get()
            except TimeoutError:
                if {request.admitted for request in job.requests} == {None}:
                    continue
                silent = False
                yield b": still here\n\n"
                continue
            for piece in pieces:
                try:
                    left.take(piece)
                except ApiError as problem:
                    if silent:
                        raise
                    yield encode_event(error_body(problem))
                    return
                body = chunk_body(job.head, piece, job.token_bytes, piece.index not in roles)
                roles.add(piece.index)
                silent = False
                yield encode_event(body)
        for last in [usage_chunk(job.head, job.usage)] * job.include_usage + [None]:
            yield encode_event(last)
    finally:
        job.cancel()


async def while_connected(work, receive):
    outcome = asyncio.Queue()

    async def working():
        try:
            await outcome.put((await work, None))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await outcome.put((None, error))

    async def watching():
        try:
            while (await receive()).get("type") != "http.disconnect":
                continue
            await outcome.put((None, ClientGone()))
        except Exception as error:
            await outcome.put((None, error))

    tasks = [asyncio.create_task(working()), asyncio.create_task(watching())]
    try:
        await asyncio.sleep(0)  # so that work has begun, and can be cancelled
        value, error = await outcome.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if error is not None:
        raise error
    return value


# --- 7.8 ---


def health(phase, is_alive, step_seconds, stall_seconds):
    match phase:
        case Phase.STOPPED:
            return 503, "stopped"
        case Phase.READY | Phase.DRAINING if not is_alive:
            return 503, "dead"
    if (step_seconds or 0) > stall_seconds:
        return 503, "stalled"
    return {"ready": 200}.get(phase.value, 503), phase.value


class Guest:
    def __init__(self, house):
        self.house = house

    def __enter__(self):
        house = self.house
        if house.phase != "ready":
            raise ApiError(503, "not now", None, str(house.phase.value), 1)
        house.inside += 1

    def __exit__(self, *problem):
        house = self.house
        house.inside -= 1
        house.door.set()


class Lifecycle:
    def __init__(self):
        self.phase, self.inside, self.door = Phase("warming"), 0, asyncio.Event()
        self.result = None

    def ready(self):
        if self.phase == "warming":
            self.phase = Phase("ready")

    def request(self):
        return Guest(self)

    async def drain(self, seconds, end_all, grace=5.0):
        if self.result is None:
            self.phase = Phase("draining")
            self.result = asyncio.create_task(self._drain(seconds, end_all, grace))
        await asyncio.wait([self.result])
        return self.result.result()

    async def _drain(self, seconds, end_all, grace):
        in_time = await self._wait(seconds)
        if not in_time:
            end_all()
            await self._wait(grace)
        self.phase = Phase("stopped")
        return in_time

    async def _wait(self, seconds):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.inside:
                    self.door.clear()
                    await self.door.wait()
        return not self.inside
