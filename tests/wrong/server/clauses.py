"""7.1 to 7.8: versions that leave out one clause of a docstring."""

import asyncio
import json
from contextlib import contextmanager

from tests.parts import part
from tests.wrong.server.doors import parsing
from tests.wrong.server.threads import method


@part("7.1")
def bytes_left_to_json(m):
    """json.loads gets the bytes: it takes UTF-16 as well, and half characters."""
    right = m._object

    def found(body):
        try:
            text = json.dumps(json.loads(body))
        except (ValueError, RecursionError):
            return right(body)
        return right(text if "NaN" not in text and "Infinity" not in text else body)

    m._object = found


@part("7.1")
def limits_compared_by_value(m):
    """max_tokens true and max_completion_tokens 1 are the same."""

    def limit(fields):
        old, new = fields.get("max_tokens"), fields.get("max_completion_tokens")
        if None not in (old, new) and old != new:
            raise m.invalid(f"{old} and {new} differ", "max_completion_tokens")
        return old if new is None else new

    m._max_tokens = limit


@part("7.1")
def nothing_is_no_wish(m):
    """top_logprobs 0 without logprobs is taken, and so is false for it."""

    def told(fields):
        top = fields.get("top_logprobs")
        if m._flag(fields, "logprobs"):
            return top or 0
        if top:
            raise m.invalid("top_logprobs goes with logprobs true", "top_logprobs")
        return None

    m._logprobs = told


@part("7.1")
def obfuscation_of_any_kind(m):
    """include_obfuscation is not looked at."""
    right = m._flag
    m._flag = lambda fields, name, inside="": (
        name == "include_obfuscation" or right(fields, name, inside)
    )


@part("7.1")
def wrong_without_words(m):
    """A refusal says that a field is wrong, and not what is allowed."""

    def change(right, body, endpoint, model):
        try:
            return right(body, endpoint, model)
        except m.ApiError as e:
            if e.code == "invalid_value":
                raise m.ApiError(400, f"{e.param} is wrong", e.param, e.code) from None
            raise

    parsing(m, change)


@part("7.1")
def stripped(m):
    """Spaces around a message are taken away."""
    right = m._content
    m._content = lambda content, where: right(content, where).strip()


@part("7.1")
def come_again(m):
    """Whoever sent a wrong body is told to send it again in a second."""

    def change(right, body, endpoint, model):
        try:
            return right(body, endpoint, model)
        except m.ApiError as e:
            e.retry_after = 1
            raise

    parsing(m, change)


@part("7.2")
def only_infinity_is_too_small(m):
    """-10000 stands as it is; only minus infinity becomes LEAST."""
    right = m._completion_logprobs

    def told(piece, token_bytes):
        values = [one.value if one.value > -1e9 else m.LEAST for one in piece.logprobs]
        return right(piece, token_bytes) | {"token_logprobs": values}

    m._completion_logprobs = told


@part("7.2")
def offsets_lent(m):
    """The body has the piece's own list."""
    right = m._completion_logprobs
    m._completion_logprobs = lambda piece, table: (
        right(piece, table) | {"text_offset": piece.offsets}
    )


@part("7.2")
def escaped_when_there_is_half_a_character(m):
    """Where one character is half, all that are not ASCII are escaped."""

    def to_json(body):
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            return text.encode()
        except UnicodeEncodeError:
            return json.dumps(body, separators=(",", ":")).encode()

    m.to_json = to_json


@part("7.4")
def none_asked_for_is_none(m):
    """logprobs 0 counts as not asked for."""
    right = m.listen

    def listen(request, *args):
        whole = right(request, *args)
        if request.params.logprobs == 0:
            request.logprobs.clear()
            hear = request.on_token

            def on_token(token):
                request.params = m.Request([1]).params
                return hear(token)

            request.on_token = on_token
        return whole

    m.listen = listen


@part("7.4")
def kept_for_nobody(m):
    """When the loop is closed the piece stays in the channel."""

    def put(right, self, piece):
        right(self, piece)
        self.all = [*getattr(self, "all", []), piece]

    method(m, "Channel", "put", put)


@part("7.5")
def speed_instead_of_gaps(m):
    """It divides by the time that the departures took, which may be 0."""

    def wait(right, self, ahead, now):
        times = list(self._times)
        if len(times) > 1:
            1 / (times[-1] - times[0])
        return right(self, ahead, now)

    method(m, "Pace", "wait", wait)


@part("7.5")
def places_of_the_cancelled(m):
    """Only an Exception gives the places back; a task that is cancelled raises none."""
    right = m.Door.enter

    @contextmanager
    def enter(self, places=1):
        with right(self, places):
            pass  # it raises where there is no room
        self.coming += places
        try:
            yield
        except Exception:
            self.coming -= places
            raise
        self.coming -= places

    m.Door.enter = enter


@part("7.6")
def forgets_what_it_keeps(m):
    """forget drops a result as well."""

    def forget(right, self, id):
        right(self, id)
        if id in self._kept:
            self._drop(id)

    method(m, "ResultStore", "forget", forget)


@part("7.6")
def an_old_one_behind_a_giant(m):
    """Where the newer result is too large, the older one of the same id is still given."""

    def keep(right, self, id, status, body):
        if len(body) > self.size:
            return self._running.discard(id)
        return right(self, id, status, body)

    method(m, "ResultStore", "keep", keep)


@part("7.6")
def kept_before_running(m):
    """A request that runs again has its old result still."""

    def get(right, self, id):
        self._sweep()
        return self._kept.get(id) or right(self, id)

    method(m, "ResultStore", "get", get)


@part("7.7")
def numbers_after_an_error(m):
    """The numbers of tokens follow an error."""
    right = m.stream

    async def stream(job, quiet):
        failed = False
        async for event in right(job, quiet):
            failed = failed or b'"error"' in event
            yield event
        if failed and job.include_usage:
            yield m.encode_event(m.usage_chunk(job.head, job.usage))

    m.stream = stream


@part("7.7")
def collected_without_logprobs(m):
    """collect forgets token_bytes."""
    right = m.response_body
    m.response_body = lambda head, answers, usage, table=None: right(head, answers, usage)


@part("7.7")
def alive_when_all_are_admitted(m):
    """No comment until the last of its requests is admitted."""
    right = m.stream

    async def stream(job, quiet):
        events = right(job, quiet)
        try:
            async for event in events:
                late = any(request.admitted is None for request in job.requests)
                if event != m.KEEP_ALIVE or not late:
                    yield event
        finally:
            await events.aclose()

    m.stream = stream


@part("7.7")
def all_else_is_a_goodbye(m):
    """Whatever is no http.request means that the client has gone."""

    async def gone(receive):
        while (await receive())["type"] == "http.request":
            pass

    m._disconnected = gone


@part("7.8")
def ready_while_it_drains(m):
    """ready helps unless it has stopped."""

    def ready(right, self):
        if self.phase != m.Phase.STOPPED:
            self.phase = m.Phase.READY

    method(m, "Lifecycle", "ready", ready)


@part("7.8")
def drained_by_whoever_asked_first(m):
    """The drain is cancelled with its first caller."""

    async def drain(self, seconds, end_all, grace=5.0):
        if self._drained is None:
            self.phase = m.Phase.DRAINING
            self._drained = asyncio.ensure_future(self._drain(seconds, end_all, grace))
        return await self._drained

    m.Lifecycle.drain = drain
