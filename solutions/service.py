"""Chapter 07: the service: everything between HTTP and the batcher, put together."""

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from solutions.announcing import Announcer
from solutions.api_error import ApiError
from solutions.api_request import CHAT, ApiRequest
from solutions.backpressure import LONGEST_WAIT
from solutions.batcher import Batcher
from solutions.channel import Channel
from solutions.ending import end
from solutions.events import Watcher
from solutions.parts import REFERENCE, Parts
from solutions.request import Request
from solutions.responses import Head, Piece
from solutions.sampling_params import SamplingParams
from solutions.settings import Settings
from solutions.streaming import Job

log = logging.getLogger(__name__)
LARGE = 4096  # bytes of a body from which it is read and tokenized beside the event loop


class Service:
    """One model, served. All methods are called on the event loop.

    Args:
        batcher: nobody else uses it; its max_waiting is how many requests may wait here.
        text: the tokenizer: encode, stream, token_bytes, special (course/text.py).
        settings: times and bounds.
        model: the name that clients use.
        watchers: are told what happens; see solutions/events.py.
        clock: seconds that never go backwards; the batcher's own.
        wall: seconds since 1970.
        on_error: gets each exception that a step met, and the one that ended the engine. From any
            thread; one that fails harms nobody.
        parts: what it is made of.

    Attributes:
        lifecycle, results, engine, door, announcer: the parts at work.
        made: when it was made, seconds since 1970, whole.
        jobs: those that are not over, and how many of its requests are not.
    """

    def __init__(
        self,
        batcher: Batcher,
        text,
        settings: Settings,
        model: str,
        watchers: Sequence[Watcher] = (),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        on_error: Callable[[BaseException], None] = lambda _: None,
        parts: Parts = REFERENCE,
    ):
        self.batcher, self.text, self.settings, self.model = batcher, text, settings, model
        self.clock, self.wall, self.parts, self.made = clock, wall, parts, int(wall())
        self.announcer, self._on_error = Announcer(watchers, clock), on_error
        self.lifecycle, self.pace = parts.Lifecycle(), parts.Pace()
        self.door = parts.Door(batcher.waiting.bound, self._waiting, self.pace, clock)
        bounds = settings.results_seconds, settings.results_count, settings.results_bytes
        self.results = parts.ResultStore(*bounds, clock)
        self.engine = parts.EngineThread(batcher, self._stepped, clock)
        self.jobs: dict[Job, int] = {}
        self._tasks: set[asyncio.Future] = set()  # a task that nobody holds may vanish
        self._aside = ThreadPoolExecutor(1, "tokenizer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dead = False

    # --- its life ---

    async def start(self) -> None:
        """Start the engine and send one small request through it: then it is ready.

        Errors: RuntimeError when that request fails.
        """
        self._loop, done = asyncio.get_running_loop(), asyncio.Event()
        params = SamplingParams(temperature=0.0, max_tokens=2)
        first = self.parts.Request([0], params, ignore_eos=True, id="warm-up")
        first.on_finish = lambda _: self._call_soon(done.set)
        self.engine.start()
        self.engine.submit(first)
        await done.wait()
        if first.finish_reason == "error":
            raise RuntimeError(f"the first request failed: {first.error!r}") from first.error
        self.lifecycle.ready()

    async def drain(self) -> bool:
        """Refuse what is new, bring to its end what runs, stop the engine; whether all finished."""
        finished = await self.lifecycle.drain(self.settings.drain_timeout, self._end_all)
        await asyncio.to_thread(self.engine.stop, 5.0)
        self._aside.shutdown(wait=False, cancel_futures=True)
        return finished

    def health(self) -> tuple[int, dict]:
        """The status of HTTP and the body of GET /health."""
        began = self.engine.began
        seconds = None if began is None else self.clock() - began
        alive, stall = self.is_alive(), self.settings.stall_timeout
        status, word = self.parts.health(self.lifecycle.phase, alive, seconds, stall)
        running, waiting = len(self.batcher.running), self._waiting()
        return status, {"status": word, "running": running, "waiting": waiting}

    def is_alive(self) -> bool:
        """Whether the engine is. What has ended it is told, if it was not yet."""
        self._tell_death()
        return self.engine.is_alive

    def _tell_death(self) -> None:
        """Say once what has ended the engine: its class and its place, no words of a user."""
        error = self.engine.error
        if error is not None and not self._dead:
            self._dead = True
            self._report(error)
            at = traceback.extract_tb(error.__traceback__)[-1:]
            place = "".join(f" at {Path(one.filename).name}:{one.lineno} {one.name}" for one in at)
            log.critical("the engine has ended: %s%s", type(error).__name__, place)

    def keep_inside(self, job: Job) -> None:
        """A job whose client does not wait is inside all the same, until it is over."""

        async def wait() -> None:
            with inside:
                await job.over.wait()

        inside = ExitStack()
        try:
            inside.enter_context(self.lifecycle.request())
        except ApiError:
            job.cancel()
            raise
        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_all(self) -> None:
        for job in list(self.jobs):
            job.cancel()

    # --- requests ---

    async def open(self, body: bytes, endpoint: str, arrived: float) -> Job:
        """Let a request in: understood, tokenized and submitted.

        Args:
            body: as it came.
            endpoint: CHAT or COMPLETION.
            arrived: when its head came in, a time of the clock.

        Returns:
            a Job, for `collect` or, when it is_stream, `stream`.

        Errors: ApiError for whatever is wrong with it, or when there is no room.
        """
        if not self.is_alive():
            raise ApiError(503, "the engine has ended", None, "dead", LONGEST_WAIT)
        aside = len(body) > LARGE
        api = await self._run(aside, self.parts.parse_body, body, endpoint, self.model)
        with self.door.enter(api.choices):
            prompts = await self._run(aside, self._encoded, api)
            return self._submit(self._job(api, prompts, arrived), api, arrived)

    async def _run(self, aside: bool, function: Callable, *args) -> Any:
        """function(*args); beside the loop where it may take long."""
        if not aside:
            return function(*args)
        return await asyncio.get_running_loop().run_in_executor(self._aside, function, *args)

    def _encoded(self, api: ApiRequest) -> list[list[int]]:
        """The ids of every prompt. On any thread."""
        return [self._ids(prompt, api.endpoint) for prompt in api.prompts]

    def _ids(self, prompt, endpoint: str) -> list[int]:
        if endpoint != CHAT:
            return self.text.encode(prompt) if isinstance(prompt, str) else prompt
        try:
            return self.parts.chat_ids(prompt, self.text.encode, self.text.special)
        except KeyError as missing:
            said = f"this model has no {missing}: it cannot chat"
            raise ApiError(400, said, "messages", "invalid_value") from None

    def _job(self, api: ApiRequest, prompts: list[list[int]], arrived: float) -> Job:
        """The job of a request; its requests are bound to its channel, and not submitted yet."""
        id = f"{'chatcmpl' if api.endpoint == CHAT else 'cmpl'}-{secrets.token_hex(12)}"
        head = Head(id, int(self.wall()), self.model, api.endpoint)
        wanted = [ids for ids in prompts for _ in range(api.n)]
        made = [self._request(api, id, n, ids, arrived) for n, ids in enumerate(wanted)]
        pieces = self.parts.Channel(self._loop.call_soon_threadsafe)
        answers = [self._listen(one, n, pieces, api) for n, one in enumerate(made)]
        return Job(
            head,
            made,
            answers,
            pieces,
            sum(map(len, prompts)),
            cancel=lambda: self._cancel(made),
            failure=self._failure,
            is_stream=api.stream,
            include_usage=api.include_usage,
            token_bytes=None if api.params.logprobs is None else self._token_bytes,
        )

    def _request(self, api: ApiRequest, id: str, n: int, ids: list[int], arrived: float):
        """One request of the batcher, for the answer number n. 400 when it could never run."""
        params, room = api.params, self.batcher.context
        if params.seed is not None and n:  # one seed, but not n times the same answer
            params = replace(params, seed=(params.seed + n + 2**63) % 2**64 - 2**63)
        made = self.parts.Request(
            ids,
            params,
            deadline=arrived + self.settings.request_timeout,
            admit_by=arrived + self.settings.queue_timeout,
            ignore_eos=api.ignore_eos,
            id=id if api.choices == 1 else f"{id}-{n}",
        )
        try:
            made.fit(room, self.batcher.model.config.vocab_size)
        except ValueError as problem:
            code = "context_length_exceeded" if len(ids) >= room else "invalid_value"
            param = "messages" if api.endpoint == CHAT else "prompt"
            raise ApiError(400, str(problem)[:200], param, code) from None
        return made

    def _listen(self, one: Request, index: int, pieces: Channel, api: ApiRequest) -> Piece:
        kind, continues = self.parts.Detokenizer, api.endpoint != CHAT
        stream = self.text.stream(kind=kind, continues=continues)
        matcher = self.parts.StopMatcher(one.params.stop)
        return self.parts.listen(one, index, pieces, stream, matcher)

    def _submit(self, job: Job, api: ApiRequest, arrived: float) -> Job:
        """All of its requests wait in the queue from now on."""
        self.results.begin(job.head.id)
        self.jobs[job] = len(job.requests)
        prompts = [prompt for prompt in api.prompts for _ in range(api.n)]
        for one, prompt in zip(job.requests, prompts, strict=True):
            self.announcer.attach(one, lambda one: self._call_soon(self._ended, job, one))
            self.announcer.arrived(one, arrived, _characters(prompt), api.stream)
        for one in job.requests:
            try:
                self.engine.submit(one)
            except RuntimeError as dead:
                end(one, "error", dead)  # as if it had been in the engine when that ended
        return job

    def _ended(self, job: Job, one: Request) -> None:
        """One of its requests is over; when it was the last, the job's result is kept."""
        if one.admitted is not None:
            self.pace.note(self.clock())
        self._tell_death()
        self.jobs[job] -= 1  # not finish_reason: that is set before all is done that an end brings
        if self.jobs[job]:
            return
        job.ended = self.clock()
        del self.jobs[job]
        errors = [error for error in map(self._failure, job.requests) if error is not None]
        if any(one.finish_reason == "cancelled" for one in job.requests):
            self.results.forget(job.head.id)  # whoever wanted it has gone
        elif errors:
            body = self.parts.error_body(errors[0])
            self.results.keep(job.head.id, errors[0].status, self.parts.to_json(body))
        else:
            body = self.parts.response_body(job.head, job.answers, job.usage, job.token_bytes)
            self.results.keep(job.head.id, 200, self.parts.to_json(body))
        job.over.set()

    def _failure(self, one: Request) -> ApiError | None:
        return self.parts.failure(one, self.pace.wait(self._waiting(), self.clock()))

    def _cancel(self, made: list[Request]) -> None:
        for one in made:
            if one.finish_reason is None:
                self.engine.cancel(one)

    def _token_bytes(self, token: int) -> bytes:
        return self.text.token_bytes(token, special=True)

    def _waiting(self) -> int:
        return len(self.batcher.waiting)

    def _stepped(self, step, seconds: float) -> None:
        self.announcer.stepped(self.batcher, step, seconds)
        for error in step.errors:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        with suppress(Exception):
            self._on_error(error)

    def _call_soon(self, function: Callable, *args) -> None:
        """On the loop, from any thread; nothing when the loop is closed: then nobody waits."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)


def _characters(prompt) -> int:
    """Length of a prompt's text; 0 when it came as ids."""
    if isinstance(prompt, str):
        return len(prompt)
    return sum(len(part["content"]) for part in prompt if isinstance(part, dict))
