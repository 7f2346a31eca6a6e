"""100,000 requests that end in every way there is: all memory is free at the end, and none grew.

python -m course bench soak
"""

import gc
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import kit
from benchmarks.fake import FakeModel, small_cache
from solutions.batcher import Batcher, Limits
from solutions.request import Request
from solutions.sampling_params import SamplingParams
from solutions.waiting import QueueFull

COUNT = 100_000
SEED = 6
ROWS, LENGTH, BOUND = 64, 64, 60
ENDS = (14,)
EARLY = 0.2  # of all requests: by then every cache and every pool has its size
GROWTH = 0.01  # of the resident memory, which the allocator may need to breathe


class Faulty(FakeModel):
    """Breaks now and then, and now and then gives logits that are no numbers."""

    def __init__(self, rng: random.Random):
        super().__init__()
        self.rng = rng

    def forward(self, tokens: Tensor, positions: Tensor, cache=None, rows=None) -> Tensor:
        """As FakeModel's; one in 500 raises, one in 200 has NaN in its first row."""
        if self.rng.random() < 1 / 500:
            raise ArithmeticError("the model failed on purpose")
        logits = super().forward(tokens, positions, cache, rows)
        if self.rng.random() < 1 / 200:
            logits[0] = float("nan")
        return logits


class Crowd:
    """Sends requests to a batcher, a few before each step, and disturbs those that are there."""

    def __init__(self, seed: int):
        self.rng, self.to_send, self.now = random.Random(seed), 0, 0.0
        self.ends: Counter = Counter()  # finish reason -> requests; and "refused"
        self.active: dict[int, Request] = {}
        self.numbers = itertools.count()
        self.batcher = Batcher(
            Faulty(self.rng),
            small_cache(ROWS, LENGTH),
            ENDS,
            Limits(max_waiting=BOUND, kv_share=0.9, step_tokens=256),
            lambda: self.now,
        )

    def send(self) -> None:
        """One more request; a full queue refuses it."""
        request = self.request(next(self.numbers))
        self.to_send -= 1
        self.active[request.id] = request
        try:
            self.batcher.submit(request)
        except QueueFull:
            self.over(request, "refused")

    def request(self, number: int) -> Request:
        """Of any size, greedy or drawn by a seed, in a hurry or not; its listener may fail."""
        rng = self.rng
        params = SamplingParams(
            temperature=rng.choice((0.0, 0.0, 1.0)),
            max_tokens=rng.randint(1, 12),
            presence_penalty=rng.choice((0.0, 0.0, 0.5)),
            seed=rng.getrandbits(32),
        )
        prompt = [rng.randrange(1, 16) for _ in range(rng.choice((1, 4, 9, 40)))]
        hurry = self.now + rng.uniform(0, 40) if rng.random() < 0.1 else None
        return Request(
            prompt,
            params,
            priority=rng.choice((0, 0, 1)),
            deadline=hurry,
            admit_by=self.now + rng.uniform(0, 20) if rng.random() < 0.1 else None,
            on_token=self.listener(),
            on_finish=lambda request: self.over(request, request.finish_reason),
            id=number,
        )

    def listener(self) -> Callable[[int], bool]:
        """Says stop at a token, or fails at it, if that comes."""
        stops = self.rng.randint(0, 15) if self.rng.random() < 0.2 else None
        fails = self.rng.randint(0, 15) if self.rng.random() < 0.05 else None

        def hear(token: int) -> bool:
            if token == fails:
                raise ArithmeticError("the listener failed on purpose")
            return token == stops

        return hear

    def over(self, request: Request, reason: str) -> None:
        """It is forgotten here, so that nobody but the batcher could still hold it."""
        self.ends[reason] += 1
        del self.active[request.id]

    def step(self) -> None:
        """Some arrive, some are cancelled, time passes, and the batcher does its step."""
        rng = self.rng
        crowd = rng.randint(0, 12) if rng.random() < 0.98 else 2 * BOUND
        for _ in range(min(self.to_send, crowd)):
            self.send()
        if self.active and rng.random() < 0.4:
            self.batcher.cancel(rng.choice(list(self.active.values())))
        self.now += rng.choice((0.01, 0.1, 1.0))
        self.batcher.step()


def soak(count: int, seed: int = SEED) -> dict:
    """Send so many requests; what was left of them, and what the process held early and late.

    Returns:
        "ends": how many ended how; "free" and "total": tokens of the cache at the end; "wrong":
        what the books say; "steps"; "early" and "late": {"objects": tracked by the garbage
        collector, "requests": of them, "resident": bytes} with nobody there, after a fifth of the
        requests and at the end.
    """
    crowd, steps, marks = Crowd(seed), 0, []
    early = int(count * EARLY)
    for crowd.to_send in (early, count - early):
        while crowd.to_send or not crowd.batcher.idle:
            crowd.step()
            steps += 1
        marks.append(_held())
    cache = crowd.batcher.cache
    return {
        "ends": dict(sorted(crowd.ends.items())),
        "free": cache.free_tokens,
        "total": cache.total_tokens,
        "wrong": crowd.batcher.check(),
        "steps": steps,
        "early": marks[0],
        "late": marks[1],
    }


def _held() -> dict[str, int]:
    """What the process holds now."""
    import psutil

    gc.collect()
    objects = gc.get_objects()
    return {
        "objects": len(objects),
        "requests": sum(type(thing) is Request for thing in objects),
        "resident": psutil.Process().memory_info().rss,
    }


def main() -> None:
    """One soak in a process of its own, and whether it left anything."""
    found = kit.child(__file__, "--child", str(COUNT))
    kit.say_machine()
    ends = ", ".join(f"{count:,} {reason}" for reason, count in found["ends"].items())
    print(f"{COUNT:,} requests, seed {SEED}: {ends}")
    print(f"{found['steps']:,} steps in {found['seconds']:.0f} s\n")
    print(f"{'':30}{'after 20 %':>14}{'at the end':>14}")
    for key, words in (("requests", "requests alive"), ("objects", "objects alive")):
        print(f"{words:30}{found['early'][key]:>14,}{found['late'][key]:>14,}")
    early, late = (found[when]["resident"] / 1e6 for when in ("early", "late"))
    print(f"{'resident MB':30}{early:>14.1f}{late:>14.1f}\n")
    problems = faults(found)
    print("all memory is free, and nothing grew" if not problems else "; ".join(problems))
    kit.save("soak", {"count": COUNT, "seed": SEED, **found, "problems": problems})
    sys.exit(1 if problems else 0)


def faults(found: dict) -> list[str]:
    """What must not be, of what soak found."""
    early, late = found["early"], found["late"]
    told = list(found["wrong"])
    if found["free"] != found["total"]:
        told.append(f"only {found['free']} of {found['total']} tokens of the cache are free")
    if late["requests"]:
        told.append(f"{late['requests']} requests are alive, and all are over")
    if late["objects"] > early["objects"]:
        told.append(f"{late['objects'] - early['objects']} objects more than after a fifth")
    if late["resident"] > early["resident"] * (1 + GROWTH):
        told.append(f"{(late['resident'] - early['resident']) / 1e6:.1f} MB grew")
    return told


def run_child(count: int) -> None:
    """One soak; prints what it found, and its seconds."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    found = soak(count)
    print(json.dumps(found | {"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    run_child(int(sys.argv[2])) if "--child" in sys.argv[1:2] else main()
