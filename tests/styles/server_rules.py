"""Chapter 07 by someone who writes rules as tables, waits on conditions, and keeps plain lists."""

import asyncio
import contextlib
import difflib
import json
import math
import threading
import time

from solutions.api_error import ApiError, ClientGone
from solutions.api_request import HARMLESS, HONOURED, SAMPLING, UNSUPPORTED, ApiRequest
from solutions.engine_thread import EngineDead
from solutions.lifecycle import Phase
from solutions.request import Request, State
from solutions.responses import Head, Piece, Usage
from solutions.results import Kept
from solutions.sampling_params import SamplingParams
from solutions.streaming import KEEP_ALIVE, Job

assert Head, Usage
assert Request, Job


# --- 7.1 ---


def bad(message, param, code="invalid_value", status=400):
    return ApiError(status, message, param, code)


def need(condition, message, param):
    if not condition:
        raise bad(f"{param}: {message}", param)


def parse_body(body, endpoint, model):
    try:
        if isinstance(body, bytes | bytearray):
            body = str(body, "utf-8")
        given = json.loads(body, parse_constant=lambda c: json.loads(f"<{c}>"))
        assert type(given) is dict, "it is no object"
    except (UnicodeDecodeError, ValueError, RecursionError, AssertionError) as e:
        raise bad(f"this is not a JSON object ({type(e).__name__})", None, "invalid_json") from e
    given = {key: given[key] for key in given if given[key] is not None}
    for key in given:
        honour(key, given[key], endpoint)
    if "model" in given:
        need(type(given["model"]) is str, f"a text is needed, not {given['model']!a}", "model")
        if given["model"] != model:
            raise bad(f"{given['model']!a} is not {model!a}", "model", "model_not_found", 404)
    n = given.get("n", 1)
    need(type(n) is int and 0 < n, f"{n!a} is no number of answers", "n")
    flags = {}
    for key in ("stream", "ignore_eos"):
        flags[key] = given.get(key, False)
        need(flags[key] is True or flags[key] is False, "true or false, please", key)
    what = "messages" if endpoint == "chat" else "prompt"
    if what not in given:
        raise bad(f"there is no {what}", what, "missing_required_parameter")
    prompts = [talk(given[what])] if endpoint == "chat" else several(given[what])
    if len(prompts) * n > 16:
        which = "prompt" if len(prompts) > 16 else "n"
        raise bad(f"{len(prompts)} times {n} is more than 16", which)
    if endpoint != "chat":
        only = prompts[0] is given[what]
        for i, prompt in enumerate(prompts):
            one_prompt(prompt, "prompt" if only else f"prompt[{i}]")
    usage = options(given, flags["stream"])
    return ApiRequest(
        endpoint=endpoint,
        prompts=prompts,
        params=sampling(given, endpoint),
        n=n,
        include_usage=usage,
        **flags,
    )


def honour(key, value, endpoint):
    known = [*HONOURED[endpoint], *HARMLESS]
    if key in known:
        return
    table = UNSUPPORTED[endpoint]
    if key in table:
        texts = [json.dumps(fine) for fine in table[key]]
        if json.dumps(value) not in texts:
            raise bad(f"{key} may only be null {texts}", key, "unsupported_parameter")
        return
    close = "".join(difflib.get_close_matches(key, known + list(table), n=1))
    raise bad(f"{key!a}? Nobody knows it. {close}", key, "unknown_parameter")


def options(given, streams):
    found = given.get("stream_options")
    if found is None:
        return False
    need(isinstance(found, dict) and streams, "an object, with stream true", "stream_options")
    for key, value in found.items():
        param = f"stream_options.{key}"
        need(key in ("include_usage", "include_obfuscation"), f"{key} is unknown", param)
        need(value is None or type(value) is bool, "true or false, please", param)
    return bool(found.get("include_usage"))


def sampling(given, endpoint):
    new = given.get("max_completion_tokens")
    old = given.get("max_tokens")
    if None not in (new, old):
        need(new == old and type(new) is type(old), f"{new}, {old}", "max_completion_tokens")
    told = given.get("logprobs")
    name = "logprobs"
    if endpoint == "chat":
        top, name = given.get("top_logprobs"), "top_logprobs"
        need(told in (None, True, False) and type(told) in (type(None), bool), "a flag", "logprobs")
        need(top is None or told, "logprobs true is needed with it", "top_logprobs")
        told = None if not told else top if top is not None else 0
    values = {key: given[key] for key in SAMPLING if key in given}
    rename = {"logprobs": name}
    if old is None:
        rename["max_tokens"] = "max_completion_tokens"
    try:
        params = SamplingParams(max_tokens=new if old is None else old, logprobs=told, **values)
    except ValueError as e:
        field = str(e).partition(" ")[0]
        field = rename.get(field, field)
        raise bad(f"{field}: {e}", field) from e
    for i, stop in enumerate(params.stop):
        whole(stop, "stop" if type(given["stop"]) is str else f"stop[{i}]")
    return params


def whole(text, where):
    need(not any("\ud800" <= c <= "\udfff" for c in text), "half a character", where)


def talk(messages):
    need(type(messages) is list and len(messages) > 0, "a list of messages", "messages")
    found = []
    for i, message in enumerate(messages):
        at = f"messages[{i}]"
        need(type(message) is dict, "an object", at)
        role = message.get("role")
        need(
            role in ["system", "user", "assistant", "developer"],
            f"{role!a}: system, user, assistant",
            f"{at}.role",
        )
        for key in ("tool_calls", "function_call"):
            if message.get(key) is not None:
                raise bad(f"{key}: no", f"{at}.{key}", "unsupported_parameter")
        content = message.get("content")
        if type(content) is list:
            for part in content:
                fine = type(part) is dict and part.get("type") == "text"
                need(fine and type(part.get("text")) is str, "parts of text", f"{at}.content")
            content = "".join([part["text"] for part in content])
        need(type(content) is str, "a text", f"{at}.content")
        whole(content, f"{at}.content")
        found.append({"role": role.replace("developer", "system"), "content": content})
    return found


def several(prompt):
    if type(prompt) is list and prompt[:1] and type(prompt[0]) in (str, list):
        return list(prompt)
    return [prompt]


def one_prompt(prompt, where):
    need(type(prompt) in (str, list) and len(prompt) > 0, "a text or ids, not empty", where)
    if type(prompt) is str:
        whole(prompt, where)
    else:
        need(all(type(i) is int for i in prompt), "ids are whole numbers", where)


# --- 7.2 ---


def response_body(head, answers, usage, token_bytes=None):
    chat = head.endpoint == "chat"
    body = frame(head, "chat.completion" if chat else "text_completion")
    for answer in answers:
        choice = {"index": answer.index}
        if chat:
            choice["message"] = dict(role="assistant", content=answer.text)
        else:
            choice["text"] = answer.text
        choice["logprobs"] = told(chat, answer, token_bytes)
        choice["finish_reason"] = answer.finish_reason
        body["choices"].append(choice)
    body["usage"] = count(usage)
    return body


def frame(head, kind):
    return dict(id=head.id, object=kind, created=head.created, model=head.model, choices=[])


def count(usage):
    a, b = usage.prompt_tokens, usage.completion_tokens
    return dict(prompt_tokens=a, completion_tokens=b, total_tokens=a + b)


def chunk_body(head, piece, token_bytes=None, first=False):
    chat = head.endpoint == "chat"
    body = frame(head, "chat.completion.chunk" if chat else "text_completion")
    choice = {"index": piece.index}
    if chat:
        delta = choice["delta"] = {}
        if first:
            delta["role"] = "assistant"
        if first or piece.text:
            delta["content"] = piece.text
    else:
        choice["text"] = piece.text
    choice |= {"logprobs": told(chat, piece, token_bytes), "finish_reason": piece.finish_reason}
    body["choices"] = [choice]
    return body


def told(chat, piece, token_bytes):
    if token_bytes is None:
        return None
    rows = []
    for one in piece.logprobs:
        tops = [(token_bytes(t), max(-9999.0, v)) for t, v in one.top.items()]
        rows.append((token_bytes(one.token), max(-9999.0, one.value), tops))
    if chat:
        content = []
        for data, value, tops in rows:
            entry = spelled(data, value)
            entry["top_logprobs"] = [spelled(*top) for top in tops]
            content.append(entry)
        return {"content": content}
    found = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for data, value, tops in rows:
        text = data.decode(errors="replace")
        found["tokens"].append(text)
        found["token_logprobs"].append(value)
        found["top_logprobs"].append({d.decode(errors="replace"): v for d, v in tops})
    found["text_offset"].extend(piece.offsets)
    return found


def spelled(data, value):
    return {"token": data.decode(errors="replace"), "logprob": value, "bytes": [*data]}


def usage_chunk(head, usage):
    kind = "chat.completion.chunk" if head.endpoint == "chat" else "text_completion"
    return {**frame(head, kind), "usage": count(usage)}


def error_body(error):
    return dict(
        error=dict(message=error.message, type=error.type, param=error.param, code=error.code)
    )


class Encoder(json.JSONEncoder):
    def __init__(self):
        super().__init__(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(body):
    text = Encoder().encode(body)
    parts = [f"\\u{ord(c):04x}" if 0xD800 <= ord(c) < 0xE000 else c for c in text]
    return "".join(parts).encode()


def encode_event(body):
    text = b"[DONE]" if body is None else to_json(body)
    return b"".join((b"data: ", text, b"\n", b"\n"))


# --- 7.3 ---


class EngineThread:
    def __init__(self, batcher, on_step=None, clock=time.monotonic):
        self.batcher, self.on_step, self.clock = batcher, on_step, clock
        self.error = self.began = None
        self.changed = threading.Condition(threading.RLock())
        self.news, self.closing, self.open = 0, False, []
        self.thread = threading.Thread(target=self.work, daemon=True)

    @property
    def is_alive(self):
        return self.thread.is_alive() and not self.closing

    def start(self):
        self.thread.start()

    def submit(self, request):
        with self.changed:
            if self.closing:
                raise EngineDead(f"over: {self.error!r}")
            self.batcher.submit(request)
            self.open.append(request)
            self.news += 1
            self.changed.notify()

    def cancel(self, request):
        self.batcher.cancel(request)
        with self.changed:
            self.news += 1
            self.changed.notify()

    def stop(self, timeout=None):
        with self.changed:
            self.closing = True
            self.changed.notify()
            fresh = self.thread.ident is None
        if fresh:
            self.finish_all("cancelled", None)
        else:
            self.thread.join(timeout)
        return not self.thread.is_alive()

    def work(self):
        reason, fault = "cancelled", None
        try:
            while self.has_work():
                self.began = self.clock()
                step = self.batcher.step()
                seconds, self.began = self.clock() - self.began, None
                with self.changed:
                    self.open = [r for r in self.open if r.state != State.FINISHED]
                if self.on_step:
                    self.on_step(step, seconds)
        except BaseException as e:
            reason, fault = "error", e
        self.finish_all(reason, fault)

    def has_work(self):
        seen = -1
        while not self.closing:
            with self.changed:
                if seen == self.news:
                    self.changed.wait()
                    continue
                seen = self.news
            if not self.batcher.idle:
                return True
        return False

    def finish_all(self, reason, fault):
        with self.changed:
            self.closing, self.began, left = True, None, self.open
            self.error, self.open = fault, []
        if fault and not isinstance(fault, Exception):
            fault = RuntimeError(repr(fault))
        for request in left:
            if request.state != State.FINISHED:
                request.finish(reason, fault)
                if request.on_finish:
                    with contextlib.suppress(Exception):
                        request.on_finish(request)


# --- 7.4 ---


class Channel:
    def __init__(self, call_soon):
        self.call_soon, self.lock, self.waiter = call_soon, threading.Lock(), None
        self.rows = []

    def put(self, piece):
        with self.lock:
            was_empty = not self.rows
            for old in self.rows:
                if old.index == piece.index:
                    old.text += piece.text
                    old.logprobs = [*old.logprobs, *piece.logprobs]
                    old.offsets = old.offsets + piece.offsets
                    old.finish_reason = piece.finish_reason
                    break
            else:
                self.rows.append(piece)
        if was_empty:
            try:
                self.call_soon(self.wake)
            except RuntimeError:
                self.rows = []

    def wake(self):
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def get(self):
        while not self.rows:
            self.waiter = asyncio.get_running_loop().create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        with self.lock:
            rows, self.rows = self.rows, []
        return rows


def listen(request, index, channel, stream, matcher):
    return Listener(request, index, channel, stream, matcher).whole


class Listener:
    def __init__(self, request, index, channel, stream, matcher):
        self.request, self.channel, self.stream, self.matcher = request, channel, stream, matcher
        self.whole = Piece(index)
        self.notes, self.places, self.here = [], [], 0
        request.on_token, request.on_finish = self.token, self.over

    def token(self, token):
        text = self.stream.add(token)
        if self.request.params.logprobs is not None:
            self.notes.append(self.request.logprobs[-1])
            self.places.append(self.here)
            self.here += len(text)
        text = self.matcher.add(text)
        if text != "":
            self.send(text, None)
        return bool(self.matcher.found)

    def over(self, request):
        text = self.matcher.add(self.stream.flush())
        text += self.matcher.flush()
        reason = request.finish_reason
        if reason == "length" and self.matcher.found:
            reason = "stop"
        self.send(text, reason)

    def send(self, text, reason):
        notes, places, self.notes, self.places = self.notes, self.places, [], []
        self.whole.text += text
        self.whole.logprobs += notes
        self.whole.offsets += places
        self.whole.finish_reason = reason
        self.channel.put(Piece(self.whole.index, text, notes, reason, places))


# --- 7.5 ---


class Pace:
    def __init__(self):
        self.all = []

    def note(self, now):
        self.all = [*self.all[-15:], now]

    def wait(self, ahead, now):
        if len(self.all) > 1:
            gaps = [b - a for a, b in zip(self.all, self.all[1:], strict=False)]
            silent = now - self.all[-1]
            if silent > sum(gaps) / len(gaps):
                gaps.append(silent)
            seconds = math.ceil(ahead * (self.all[-1] - self.all[0] if len(gaps) < len(self.all)
                                         else now - self.all[0]) / len(gaps))  # fmt: skip
            return 1 if seconds < 1 else 60 if seconds > 60 else seconds
        return 1


class Door:
    def __init__(self, bound, waiting, pace, clock):
        self.bound, self.waiting, self.pace, self.clock = bound, waiting, pace, clock
        self.coming = 0

    def enter(self, places=1):
        return Place(self, places)


class Place:
    def __init__(self, door, places):
        self.door, self.places = door, places

    def __enter__(self):
        door = self.door
        if self.places > door.bound:
            raise ApiError(400, f"{self.places} of {door.bound}", "n", "invalid_value")
        before = door.waiting() + door.coming
        if before > door.bound - self.places:
            wait = door.pace.wait(before, door.clock())
            raise ApiError(503, "full", code="queue_full", retry_after=wait)
        door.coming += self.places

    def __exit__(self, *problem):
        self.door.coming -= self.places


def failure(request, retry_after):
    match request.finish_reason, request.admitted:
        case ("stop" | "length", _):
            return None
        case ("timeout", None):
            return ApiError(503, "never began", code="queue_timeout", retry_after=retry_after)
        case ("timeout", _):
            return ApiError(504, "too slow", code="timeout")
        case ("cancelled", _):
            return ApiError(503, "ended", code="cancelled", retry_after=retry_after)
    return ApiError(500, request.error.__class__.__name__, code="engine_error")


# --- 7.6 ---


class ResultStore:
    def __init__(self, seconds, most, size, clock):
        self.bounds, self.clock = (seconds, most, size), clock
        self.busy, self.rows = [], []  # rows: (id, Kept)

    def fresh(self):
        now = self.clock()
        self.rows = [row for row in self.rows if row[1].until > now]
        return self.rows

    def __len__(self):
        return len(self.fresh())

    @property
    def bytes(self):
        return sum(len(kept.body) for _, kept in self.fresh())

    def begin(self, id):
        self.busy.append(id)

    def forget(self, id):
        self.busy = [other for other in self.busy if other != id]

    def keep(self, id, status, body):
        self.forget(id)
        seconds, most, size = self.bounds
        self.rows = [row for row in self.fresh() if row[0] != id]
        if len(body) <= size:
            self.rows.append((id, Kept(status, body, self.clock() + seconds)))
        while self.rows and (len(self.rows) > most or self.bytes > size):
            del self.rows[0]

    def get(self, id):
        found = [kept for name, kept in self.fresh() if name == id]
        return "running" if id in self.busy else found[0] if found else None


# --- 7.7 ---


async def collect(job):
    over = 0
    try:
        while over < len(job.requests):
            for piece in await job.channel.get():
                if piece.finish_reason:
                    over += 1
                    wrong = job.failure(job.requests[piece.index])
                    if wrong:
                        raise wrong
    finally:
        job.cancel()
    return response_body(job.head, job.answers, job.usage, job.token_bytes)


async def stream(job, quiet):
    waiting = None
    sent, begun, left = 0, [], len(job.requests)
    try:
        while left:
            waiting = waiting or asyncio.ensure_future(job.channel.get())
            done, _ = await asyncio.wait([waiting], timeout=quiet)
            if not done:
                if all(request.admitted is None for request in job.requests):
                    continue
                sent += 1
                yield KEEP_ALIVE
                continue
            pieces, waiting = waiting.result(), None
            for piece in pieces:
                over = piece.finish_reason is not None
                wrong = job.failure(job.requests[piece.index]) if over else None
                if wrong and not sent:
                    raise wrong
                if wrong:
                    yield encode_event(error_body(wrong))
                    return
                first = job.head.endpoint == "chat" and piece.index not in begun
                begun.append(piece.index)
                sent, left = sent + 1, left - over
                yield encode_event(chunk_body(job.head, piece, job.token_bytes, first))
        if job.include_usage:
            yield encode_event(usage_chunk(job.head, job.usage))
        yield b"data: [DONE]\n\n"
    finally:
        if waiting is not None:
            waiting.cancel()
        job.cancel()


async def while_connected(work, receive):
    gone = False

    async def watch():
        nonlocal gone
        message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        if not task.done():
            gone = True
            task.cancel()

    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(watch())
    try:
        return await task
    except asyncio.CancelledError:
        if gone:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


# --- 7.8 ---


def health(phase, is_alive, step_seconds, stall_seconds):
    rows = [
        (phase == "stopped", "stopped"),
        (not is_alive and phase != "warming", "dead"),
        (step_seconds is not None and step_seconds > stall_seconds, "stalled"),
        (phase != "ready", phase.value),
        (True, "ready"),
    ]
    word = next(word for holds, word in rows if holds)
    return 200 if word == "ready" else 503, word


class Lifecycle:
    def __init__(self):
        self.phase, self.inside, self.leavers, self.first = Phase.WARMING, 0, [], None

    def ready(self):
        self.phase = Phase.READY if self.phase is Phase.WARMING else self.phase

    @contextlib.contextmanager
    def request(self):
        if self.phase is not Phase.READY:
            word = self.phase.value
            raise ApiError(503, f"it is {word}", code=word, retry_after=1)
        self.inside += 1
        try:
            yield self
        finally:
            self.inside -= 1
            while self.inside == 0 and self.leavers:
                future = self.leavers.pop()
                if not future.done():
                    future.set_result(True)

    async def drain(self, seconds, end_all, grace=5.0):
        if self.first is None:
            self.phase = Phase.DRAINING
            self.first = asyncio.ensure_future(self.once(seconds, end_all, grace))
        return await asyncio.shield(self.first)

    async def once(self, seconds, end_all, grace):
        fine = await self.gone(seconds)
        if not fine:
            end_all()
            await self.gone(grace)
        self.phase = Phase.STOPPED
        return fine

    async def gone(self, seconds):
        if self.inside:
            self.leavers.append(asyncio.get_running_loop().create_future())
            await asyncio.wait(self.leavers[-1:], timeout=seconds)
        return self.inside == 0
