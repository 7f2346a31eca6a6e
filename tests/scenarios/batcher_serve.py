"""Chapter 06 beside the code under test: a batcher that is driven from outside, and watched.

Every scenario takes the module under test first and returns plain data.
"""

import gc
import threading
import weakref

from solutions import forward_pass
from solutions.kv_cache import KVCache
from solutions.sampling_params import SamplingParams
from tests.scenarios.batcher_models import ERRORS, Clock, Teller, new_cache, watched_sampler
from tests.scenarios.helpers import attempt, in_words, llama_of, told

SETTING = {
    "cache": [4, 64],  # rows, tokens in each
    "ends": [],
    "limits": {},
    "context": 256,  # of the model
    "breaks": {},  # number of a forward: error
    "sample_breaks": {},  # number of a call of sample: error
    "report_breaks": {},  # of report
    "states_break": {},  # of SamplingState
}


class Drive:
    """One batcher on a Teller, its clock, its requests by name, and all that happened."""

    def __init__(self, module, setting: dict, wishes: dict):
        self.module, self.wishes, self.events, self.unsound = module, wishes, [], []
        setting = SETTING | setting
        self.clock, self.cache = Clock(), new_cache(*setting["cache"])
        self.model = Teller(self.events, setting["breaks"], setting["context"])
        self.batcher = module.Batcher(
            self.model,
            self.cache,
            setting["ends"],
            module.Limits(**setting["limits"]),
            self.clock,
            watched_sampler(
                self.events,
                sample=setting["sample_breaks"],
                report=setting["report_breaks"],
                SamplingState=setting["states_break"],
            ),
        )
        self.made = {name: self._request(name, **wish) for name, wish in wishes.items()}

    def _request(
        self, name, prompt, params=None, on_token=None, on_finish=None, mute=False, id=None, **more
    ):
        """on_token: {number of a token: True, 1, the name of an error, or [a step]}."""
        told = dict(on_token or {})
        count = []

        def hear(token):
            count.append(token)
            self.events.append(["token", name, token])
            return self._react(told.get(len(count)))

        def over(request):
            self.events.append(["finish", name, request.finish_reason, int(self.cache.used_tokens)])
            if request in self.batcher.running.values():
                self.unsound.append(f"{name} hears that it is over and is still in running")
            return self._react(on_finish)

        params = SamplingParams(**{"temperature": 0.0, "max_tokens": 5} | (params or {}))
        listeners = {} if mute else {"on_token": hear, "on_finish": over}
        return self.module.Request(prompt, params, id=id or name, **listeners, **more)

    def _react(self, reaction):
        if isinstance(reaction, list):
            return self.do(*reaction)
        if isinstance(reaction, str) and reaction in ERRORS:
            raise ERRORS[reaction]("the listener failed on purpose")
        return reaction

    def do(self, name: str, *args):
        """One call of the script, and what it gave."""
        if name == "fails":
            return attempt(lambda: self.do(*args[1]), args[0])
        if name == "time":
            self.clock.now = args[0]
            return None
        if name in ("submit", "cancel"):
            getattr(self.batcher, name)(self.made[args[0]])
            return None
        if name == "run":
            return self._run(*args)
        if name == "idle":
            return bool(self.batcher.idle)
        if name == "leak":
            return self.cache.reserve(*args)
        return self._step()

    def _step(self) -> dict:
        before, calls = self.clock.asked, len(self.events)
        step = self.batcher.step()
        try:
            found = {
                "decode": list(step.decode),
                "prefill": dict(step.prefill),
                "counts": [step.places, step.running, step.waiting],
                "errors": [type(error).__name__ for error in step.errors],
            }
        except (AttributeError, TypeError) as problem:
            return {"unusable": f"step should return a Step, not {in_words(step)} ({problem})"}
        stands = {name: str(request.state) for name, request in self.made.items()}
        return found | {
            "asked": self.clock.asked - before,
            "events": self.events[calls:],
            "stands": stands,
            "wrong": self.wrong(),
        }

    def _run(self, most: int = 200) -> list:
        """Steps until it is idle, or so many."""
        steps = []
        while not self.batcher.idle and len(steps) < most:
            steps.append(self._step())
        return steps

    def wrong(self) -> list:
        """What does not balance, seen from outside."""
        cache, found = self.cache, list(self.unsound)
        rooms = [r.size for r in self.made.values() if r.row is not None]
        if int(cache.used_tokens) != sum(rooms):
            found.append(f"{int(cache.used_tokens)} tokens reserved, {sum(rooms)} held by requests")
        rows = [r.row for r in self.made.values() if r.row is not None]
        if len(set(rows)) < len(rows):
            found.append(f"rows {rows} are held twice")
        return found

    def ends(self) -> dict:
        """How every request ended: output, reason, error, row, and tokens remembered."""
        return {
            name: {
                "output": list(r.output),
                "reason": r.finish_reason,
                "error": None if r.error is None else [type(r.error).__name__, str(r.error)],
                "state": str(r.state),
                "row": r.row,
                "limit": r.limit,
                "logprobs": [[t.token, round(t.value, 3), len(t.top)] for t in r.logprobs],
                "times": [r.arrival, r.admitted],
            }
            for name, r in self.made.items()
        }


@told
def serve(module, setting: dict, wishes: dict, script: list) -> dict:
    """A batcher driven by a script.

    Args:
        setting: changes of SETTING.
        wishes: requests by name: "prompt", "params", "priority", "deadline", "admit_by",
            "ignore_eos", "on_token", "on_finish", "mute" (nobody listens), "id" (else the name).
        script: calls of Drive.do.

    Returns:
        "answers" of the calls; "events" in their order; "ends" of the requests; "used" tokens,
        "check" and "idle" of the batcher at the end.
    """
    drive = Drive(module, setting, wishes)
    answers = [drive.do(*call) for call in script]
    return {
        "answers": answers,
        "events": drive.events,
        "ends": drive.ends(),
        "used": int(drive.cache.used_tokens),
        "check": list(drive.batcher.check()),
        "idle": bool(drive.batcher.idle),
    }


@told
def serve_from_threads(module, setting: dict, wishes: dict) -> dict:
    """The first request runs; during its first forward another thread submits the second, cancels
    the third, and submits the fourth. Whether that thread was held up, and how all ended.
    """
    drive = Drive(module, setting, wishes)
    first, second, third, fourth = wishes
    drive.do("submit", first)
    drive.do("submit", third)
    threads: list = []

    def others():
        drive.do("submit", second)
        drive.do("cancel", third)
        drive.do("submit", fourth)

    def during():
        if not threads:
            threads.append(threading.Thread(target=others, daemon=True))
            threads[0].start()
            threads[0].join(1.0)
            threads.append(threads[0].is_alive())

    drive.model.during = during
    drive.do("run")
    return {"held_up": threads[1], "ends": drive.ends(), "check": list(drive.batcher.check())}


@told
def serve_llama(module, model: str, wishes: list, limits: dict, cache: list, joins: list) -> list:
    """[ids, finish reason] of prompts through a batcher on a real tiny model.

    Args:
        wishes: [prompt, max_tokens, priority] each.
        cache: rows and tokens in each.
        joins: the step before which each request is submitted.
    """
    llama = llama_of(forward_pass, model)
    room = KVCache(llama.config, *cache)
    batcher = module.Batcher(llama, room, (), module.Limits(**limits), Clock())
    made = [
        module.Request(prompt, SamplingParams(temperature=0.0, max_tokens=count), priority=priority)
        for prompt, count, priority in wishes
    ]
    waiting = sorted(zip(joins, range(len(made)), strict=True))
    for step in range(1000):
        while waiting and waiting[0][0] <= step:
            batcher.submit(made[waiting.pop(0)[1]])
        if not waiting and batcher.idle:
            break
        batcher.step()
    return [[list(r.output), r.finish_reason] for r in made]


@told
def serve_sampled(module, wishes: list, limits: dict, rows: int) -> list:
    """The ids of prompts [prompt, params] that are drawn, with a batcher of so many rows."""
    model = Teller([], {}, spoils=False)
    sure = model.forward
    model.forward = lambda *args, **named: sure(*args, **named) / 4
    batcher = module.Batcher(model, new_cache(rows, 64), (), module.Limits(**limits), Clock())
    made = [module.Request(prompt, SamplingParams(**params)) for prompt, params in wishes]
    for request in made:
        batcher.submit(request)
    for _ in range(500):
        if batcher.idle:
            break
        batcher.step()
    return [list(request.output) for request in made]


@told
def serve_memory(module, count: int) -> int:
    """How many of so many requests are in memory after they were served, 20 at a time."""
    batcher = module.Batcher(Teller([], {}), new_cache(4, 16), (), module.Limits(), Clock())
    alive = []
    for n in range(count):
        params = SamplingParams(temperature=0.0, max_tokens=2)
        batcher.submit(request := module.Request([1 + n % 9], params))
        alive.append(weakref.ref(request))
        del request
        for _ in range(40 if n % 20 == 19 else 0):  # 20 requests, 4 at a time, 2 steps each
            batcher.step()
    gc.collect()
    return sum(one() is not None for one in alive)


@told
def serve_pairs(module, wishes: dict) -> list:
    """Two batchers side by side, the same wishes in each: how they end.

    After a step each is told to cancel all that the other has.
    """
    drives = [Drive(module, {}, wishes) for _ in range(2)]
    for drive in drives:
        for name in wishes:
            drive.do("submit", name)
    for drive, other in (drives, drives[::-1]):
        drive.do("step")
        for request in other.made.values():
            drive.batcher.cancel(request)
    for _ in range(60):
        for drive in drives:
            drive.do("step")
    return [{n: [e["output"], e["reason"]] for n, e in d.ends().items()} for d in drives]
