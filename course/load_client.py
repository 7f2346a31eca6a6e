"""The part of the load generator that talks: an open loop of requests over HTTP.

Open: the next request goes out when it is due, whether or not the last has come back. In a closed
loop, in which so many clients each wait for their answer before they ask again, a server that is
slow is asked less: it sets its own load, no queue ever grows, and the requests that would have met
the worst moment are never sent. Its percentiles are those of a service that nobody is kept waiting
for. People do not wait for each other before they come.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import httpx

from course.load_figures import ANSWERED, NO_SERVER, REJECTED, Outcome
from course.load_plan import Planned
from course.load_stream import EventStream, finish_reason, piece, read_event, usage

Clock = Callable[[], float]
Send = Callable[[Planned, Outcome], Awaitable[None]]
REFUSALS = (429, 503)
PATIENCE = 10.0  # seconds for what a server can say without computing anything


class LoadError(Exception):
    """Why there is nothing to measure, in one sentence with what to do."""


@dataclass(frozen=True)
class Target:
    """Where requests go and in which form.

    Args:
        url: of the server, without a path.
        model: its name in a request.
        chat: conversations of one message, instead of texts to continue.
        stream: the answer comes piece by piece.
        key: the API key, if the server wants one.
        temperature: 0 is greedy, which asks for the same work each time.
        ignore_eos: each answer is as long as planned, where the server knows this field, which is
            not OpenAI's but vLLM's.
        timeout: seconds without a sign of the server after which a request has failed.
    """

    url: str
    model: str = ""
    chat: bool = False
    stream: bool = True
    key: str | None = None
    temperature: float = 0.0
    ignore_eos: bool = False
    timeout: float = 120.0

    @property
    def path(self) -> str:
        """The route."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, planned: Planned) -> bytes:
        """The JSON of a request."""
        fields = {
            "model": self.model,
            "max_tokens": planned.max_tokens,
            "temperature": self.temperature,
            "stream": self.stream,
        }
        if self.chat:
            fields["messages"] = [{"role": "user", "content": planned.prompt}]
        else:
            fields["prompt"] = planned.prompt
        if self.ignore_eos:
            fields["ignore_eos"] = True
        if self.stream:
            fields["stream_options"] = {"include_usage": True}
        return json.dumps(fields).encode()

    def client(self) -> httpx.AsyncClient:
        """Connections without a limit: waiting for a free one would be a closed loop again.

        Proxies of the environment are left out, for they would be measured too.
        """
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}".encode()  # ASCII is httpx's own way
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(self.timeout, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )


async def find_model(client: httpx.AsyncClient, url: str) -> str:
    """The name of the first model that the server offers.

    Errors: LoadError when there is no server, it does not answer soon, or it is another kind of
    server.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await client.get("/v1/models")
    except (httpx.ConnectError, httpx.ConnectTimeout) as problem:
        raise LoadError(no_server(url, problem)) from None
    except TimeoutError:
        raise LoadError(
            f"{url} does not answer: nothing came from /v1/models for {PATIENCE:g} s, which needs "
            "no computing. Is it stuck, or no HTTP server? See its log, or name --url"
        ) from None
    except httpx.HTTPError as problem:
        raise LoadError(
            f"{url} is there, but gives no answer that can be read ({_reason(problem)}): is this "
            "an OpenAI-compatible server? See its log, or name --url"
        ) from None
    if answer.status_code == 401:
        raise LoadError(f"{url} wants an API key: give it with --api-key, or in LLM_API_KEY")
    try:
        return str(answer.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        raise LoadError(
            f"{url}/v1/models answers {answer.status_code} and names no model: "
            "is this an OpenAI-compatible server?"
        ) from None


def no_server(url: str, problem: Exception) -> str:
    """What to say when nobody answers."""
    fix = "start one with `python -m course serve`, or name --url"
    return f"no server at {url} ({_reason(problem)}): {fix}"


def _reason(problem: Exception) -> str:
    return str(problem) or type(problem).__name__


async def open_loop(
    plan: Iterable[Planned],
    send: Send,
    outcomes: list[Outcome],
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Send each request when it is due, and wait for all at the end.

    Args:
        plan: in the order of their times.
        send: sends one and fills in its outcome.
        outcomes: gets one for each request that was sent; whole or not when this is cancelled.
        clock: seconds since the run began.
        stop: asked before each request; true ends the sending.
    """
    async with asyncio.TaskGroup() as group:
        for planned in plan:
            await _until(planned.at, clock, sleep)
            if stop():
                return
            outcome = Outcome(planned.at)
            outcomes.append(outcome)
            group.create_task(send(planned, outcome))


async def _until(at: float, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Sleep, again where a sleep was too short."""
    while (left := at - clock()) > 0:
        await sleep(left)
    await asyncio.sleep(0)  # those that are late must not keep the answers from being read


async def send(
    client: httpx.AsyncClient, target: Target, planned: Planned, outcome: Outcome, clock: Clock
) -> None:
    """Send one request, read its answer to the end, and note when what came. Never raises."""
    body = target.body(planned)
    outcome.sent = clock()
    try:
        async with client.stream("POST", target.path, content=body) as answer:
            if answer.status_code != 200:
                await _refused(answer, outcome)
            elif target.stream:
                await _read_stream(answer, outcome, clock)
            else:
                _read_whole(json.loads(await answer.aread()), outcome)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        outcome.kind = NO_SERVER
    except httpx.TimeoutException:
        outcome.kind = f"nothing came for {target.timeout:g} s"
    except httpx.HTTPError:
        outcome.kind = "the connection broke"
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        outcome.kind = "not an answer of this protocol"
    finally:
        outcome.ended = clock()


async def _refused(answer: httpx.Response, outcome: Outcome) -> None:
    """Any status but 200. A refusal may say when to come again."""
    if answer.status_code in REFUSALS:
        outcome.kind, outcome.retry_after = REJECTED, _seconds(answer.headers.get("retry-after"))
    else:
        outcome.kind = f"status {answer.status_code}"
    await answer.aread()  # so that the connection can be used again


def _seconds(text: str | None) -> float | None:
    """A Retry-After in seconds; the other form, a date, is not used by such servers."""
    return float(text) if text and text.isascii() and text.isdigit() else None


async def _read_stream(answer: httpx.Response, outcome: Outcome, clock: Clock) -> None:
    """Note the time of every piece; the answer is whole when [DONE] has come."""
    events, done = EventStream(), False
    async for chunk in answer.aiter_bytes():
        now = clock()
        for data in events.feed(chunk):
            if data == "[DONE]":
                done = True
                continue
            event = read_event(data)
            if "error" in event:
                outcome.kind = f"error in the stream: {_type(event['error'])}"
                return
            if piece(event):
                outcome.pieces.append(now)
            _note(event, outcome)
    outcome.kind = ANSWERED if done else "the stream ended before its [DONE]"


def _read_whole(answer: dict, outcome: Outcome) -> None:
    """An answer in one piece."""
    _note(answer, outcome)
    if not answer["choices"]:
        raise ValueError("an answer without choices")
    outcome.kind = ANSWERED


def _note(event: dict, outcome: Outcome) -> None:
    """What a chunk or an answer says about itself."""
    outcome.finish_reason = finish_reason(event) or outcome.finish_reason
    if counts := usage(event):
        outcome.prompt_tokens, outcome.tokens = counts


def _type(error: object) -> str:
    """The type of an error object, never its message, which may differ each time."""
    return str(error.get("type") if isinstance(error, dict) else "unknown")[:40]
