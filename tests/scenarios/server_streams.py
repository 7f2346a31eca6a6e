"""Chapter 07 beside the code under test: streams, clients that leave, and the end of the service.

Every scenario takes the module under test first and returns plain data. Times are seconds of a loop
whose time jumps.
"""

import asyncio
import inspect
from types import SimpleNamespace

from tests.scenarios.helpers import Unusable, in_words, told
from tests.scenarios.server_bodies import BYTES, _probabilities
from tests.scenarios.server_bounds import leave_by
from tests.scenarios.server_loop import run, settle

# --- 7.7 ---

JOB = {
    "endpoint": "chat",
    "outputs": [3],  # tokens of each answer
    "puts": [],  # [time, index, text, finish_reason or None, [[token, offset], ...]]
    "admitted": [],  # when each request is, None for never; all others at 0
    "quiet": 15.0,
    "usage": False,
    "told": False,  # whether log-probabilities were asked for
    "fails": {},  # index: arguments of the ApiError that failure gives for it
    "cancel_at": None,  # when whoever reads is cancelled
    "turns": 0,  # of the loop, after that time, until he is
    "close_after": None,  # pieces after which the reader closes the stream
    "slow": 0.0,  # seconds that the reader takes for each piece
}


class _Job:
    """A job of the module, fed by a script."""

    def __init__(self, module, loop, setting: dict):
        self.module, self.loop, self.setting = module, loop, JOB | setting
        self.cancels: list = []
        count = len(self.setting["outputs"])
        self.requests = [
            SimpleNamespace(output=[0] * tokens, id=n, finish_reason=None, admitted=0.0)
            for n, tokens in enumerate(self.setting["outputs"])
        ]
        self.answers = [module.Piece(index) for index in range(count)]
        self.channel = module.Channel(loop.call_soon_threadsafe)
        self.job = module.Job(
            module.Head("id-7", 5, "m", self.setting["endpoint"]),
            self.requests,
            self.answers,
            self.channel,
            11,
            cancel=lambda: self.cancels.append(loop.time()),
            failure=self._failure,
            is_stream=True,
            include_usage=self.setting["usage"],
            token_bytes=BYTES.__getitem__ if self.setting["told"] else None,
        )
        for request, at in zip(self.requests, self.setting["admitted"], strict=False):
            request.admitted = None
            if at is not None:
                loop.call_at(at, setattr, request, "admitted", at)
        for at, *put in self.setting["puts"]:
            loop.call_at(at, self._put, *put)

    def _failure(self, request):
        if request.finish_reason is None:
            raise Unusable("failure was asked about a request that is not over")
        wrong = self.setting["fails"].get(request.id)
        return self.module.ApiError(*wrong) if wrong else None

    def _put(self, index, text, reason=None, tokens=()):
        notes, places = [[token, -1.0, []] for token, _ in tokens], [at for _, at in tokens]
        for target in (self.answers[index].join, self.channel.put):
            target(self.module.Piece(index, text, _probabilities(notes), reason, list(places)))
        self.requests[index].finish_reason = reason


async def _ended(loop, setting, work) -> dict:
    """How work ended: what it gave, or what it raised; and when."""
    task = asyncio.ensure_future(work)
    if setting.get("cancel_at") is not None:
        loop.call_at(setting["cancel_at"], _cancel, loop, task, setting.get("turns", 0))
    try:
        found = {"gave": await task}
    except asyncio.CancelledError:
        found = {"raised": "CancelledError"}
    except NotImplementedError:
        raise
    except Exception as error:
        facts = [getattr(error, name, None) for name in ("status", "code")]
        found = {"raised": type(error).__name__, "facts": facts}
    return found | {"at": loop.time()}


def _cancel(loop, task, turns: int) -> None:
    """Cancel it after so many turns of the loop."""
    if turns:
        loop.call_soon(_cancel, loop, task, turns - 1)
    else:
        task.cancel()


@told
def collects(module, setting: dict) -> dict:
    """collect of a job: how it ended, and when cancel was called."""

    async def go(loop):
        made = _Job(module, loop, setting)
        found = await _ended(loop, made.setting, module.collect(made.job))
        return found | {"cancels": made.cancels}

    return run(go)


@told
def streams(module, setting: dict) -> dict:
    """stream of a job: [time, event] of all that came, how it ended, and when cancel was called."""
    return run(lambda loop: _streams(module, loop, setting))


async def _streams(module, loop, setting: dict) -> dict:
    made, events = _Job(module, loop, setting), []
    found = module.stream(made.job, made.setting["quiet"])
    if inspect.iscoroutine(found):  # a stub, or a function without yield
        found = await found
    if not hasattr(found, "__anext__") or not hasattr(found, "aclose"):
        raise Unusable(f"stream should be an async generator, but gave {in_words(found)}")

    async def read():
        async for event in found:
            if not isinstance(event, bytes):
                raise Unusable(f"stream should yield bytes, not {in_words(event)}")
            events.append([loop.time(), event.decode("latin-1")])
            if made.setting["slow"]:
                await asyncio.sleep(made.setting["slow"])
            if len(events) == made.setting["close_after"]:
                break

    ended = await _ended(loop, made.setting, read())
    before = list(made.cancels)
    await found.aclose()
    return ended | {"events": events, "cancels": [before, made.cancels]}


@told
def connections(module, setting: dict) -> dict:
    """while_connected: how it ended and when, what happened to the work, and what was left.

    setting: "takes" (seconds of the work; None for ever), "fails" (the work raises at its end),
    "tidies" (seconds that it takes to end when it is cancelled), "messages" ([time, type] that
    receive gives), "cancel_at".
    """
    return run(lambda loop: _connections(module, loop, setting))


async def _connections(module, loop, setting: dict) -> dict:
    happened: list = []
    messages = list(setting.get("messages", []))

    async def work():
        happened.append(["began", loop.time()])
        try:
            if setting["takes"] is None:
                await asyncio.Event().wait()
            await asyncio.sleep(setting["takes"])
            if setting.get("fails"):
                raise LookupError("on purpose")
            happened.append(["done", loop.time()])
            return "the answer"
        except asyncio.CancelledError:
            if setting.get("tidies"):
                await asyncio.sleep(setting["tidies"])
            happened.append(["cancelled", loop.time()])
            raise

    async def receive():
        if not messages:
            await asyncio.Event().wait()
        at, kind = messages.pop(0)
        await asyncio.sleep(at - loop.time())
        return {"type": kind}

    coroutine = module.while_connected(work(), receive)
    found = await _ended(loop, setting, coroutine)
    await settle()
    left = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    return found | {"happened": happened, "left": len(left)}


# --- 7.8 ---


@told
def healths(module, calls: list) -> list:
    """What health says of [phase, is_alive, step_seconds, stall_seconds]."""
    found = [module.health(module.Phase(phase), *rest) for phase, *rest in calls]
    if not all(isinstance(one, tuple | list) and len(one) == 2 for one in found):
        raise Unusable(f"health should return (status, word), but returned {in_words(found[0])}")
    return [[status, str(word)] for status, word in found]


@told
def lifecycles(module, script: list, until: float) -> dict:
    """A Lifecycle driven by a script.

    Args:
        script: [time, name, ...]: "ready"; "enter" name; "leave" name; "raise" name (leave by an
            exception); "cancel" name (as a task does that is cancelled); "drain" seconds, grace,
            [names that end_all makes leave, and after how many seconds]; "give up" (cancels who
            called the first drain); "look".
        until: when the scenario ends.

    Returns:
        "answers" of the steps in their order: None, or what enter raised, or [phase, inside] of a
        look; "drains": [began, ended, what it gave] each; "ends": when end_all was called.
    """
    return run(lambda loop: _lifecycles(module, loop, script, until))


async def _lifecycles(module, loop, script: list, until: float) -> dict:
    life = module.Lifecycle()
    inside: dict = {}
    answers, drains, ends, tasks = [], [], [], []

    def leave(name):
        if name in inside:
            inside.pop(name).__exit__(None, None, None)

    async def drain(seconds, grace, leavers):
        began = loop.time()

        def end_all():
            ends.append(loop.time())
            for name, after in leavers:
                loop.call_later(after, leave, name)

        given = await life.drain(seconds, end_all, grace)
        drains.append([began, loop.time(), given, str(life.phase)])

    def do(name, *args):
        if name == "enter":
            try:
                entry = life.request()
                entry.__enter__()
            except module.ApiError as error:
                if error.param is not None or not error.message:
                    said = "the ApiError of request should have a message and no param"
                    raise Unusable(said) from None
                return [error.status, error.code, error.retry_after]
            inside[args[0]] = entry
        elif name == "leave":
            leave(args[0])
        elif name in ("raise", "cancel"):
            kind = KeyError if name == "raise" else asyncio.CancelledError
            leave_by(kind("on purpose"), inside.pop(args[0]), "request")
        elif name == "drain":
            tasks.append(asyncio.ensure_future(drain(*args)))
        elif name == "give up":
            tasks[0].cancel()
        elif name == "look":
            return [str(life.phase), life.inside]
        else:
            life.ready()
        return None

    for at, *step in script:
        await asyncio.sleep(at - loop.time())
        answers.append(do(*step))
        await settle()
    await asyncio.sleep(until - loop.time())
    for task in tasks:
        if not task.done():
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return {"answers": answers, "drains": drains, "ends": ends}
