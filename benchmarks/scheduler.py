"""The batcher's own work in a step, by how many run and wait, with a model that costs nothing.

python -m course bench scheduler
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator

from benchmarks import kit
from benchmarks.fake import FakeModel, small_cache
from solutions.batcher import Batcher, Limits
from solutions.request import Request
from solutions.sampling_params import SamplingParams

ROUNDS = 3
RUNNING = (32, 64, 128, 256, 512)
WAITING = (0, 10_000, 100_000)
STEPS = 200
ANSWER = 32  # tokens of each request in the churn: one in 32 leaves and is replaced in every step
ENDLESS = 2000  # tokens: more than anybody gets here
PROMPT = 8
PROMISE = 256, 10_000, 2.0  # running, waiting, ms


def main() -> None:
    """Every size in turns, a process for each number of running ones; then the tables."""
    names = [str(running) for running in RUNNING]
    found = kit.in_turns(names, lambda name: kit.child(__file__, "--child", name), ROUNDS)
    kit.say_machine()
    print(
        f"{ROUNDS} rounds of {STEPS} steps each; one thread; CPU ms of the mean step, "
        "in the quickest round\n"
    )
    tables = {kind: _table(found, kind) for kind in ("steady", "churn")}
    _say("steady: everybody decodes, nobody leaves", tables["steady"])
    _say(f"churn: one in {ANSWER} leaves in every step, and another is let in", tables["churn"])
    verdicts = {kind: _verdict(kind, table) for kind, table in tables.items()}
    kit.save("scheduler", {"rounds": ROUNDS, "runs": found, "tables": tables, **verdicts})


def _table(found: dict, kind: str) -> dict[str, dict[str, float]]:
    """{running: {waiting: ms}}: the mean step of the quickest round."""
    return {
        name: {str(waiting): min(run[f"{kind} {waiting}"] for run in runs) for waiting in WAITING}
        for name, runs in found.items()
    }


def _say(title: str, table: dict) -> None:
    print(title)
    print(f"{'running':>9}" + "".join(f"{f'{w:,} waiting':>17}" for w in WAITING) + "   µs each")
    for name, cells in table.items():
        each = cells[str(WAITING[0])] / int(name) * 1000
        print(f"{name:>9}" + "".join(f"{ms:>17.3f}" for ms in cells.values()) + f"{each:>10.1f}")
    print()


def _verdict(kind: str, table: dict) -> dict[str, float]:
    """What is promised, and what was found."""
    running, waiting, most = PROMISE
    took = table[str(running)][str(waiting)]
    word = "under" if took < most else "OVER"
    print(f"{kind}: {running} running, {waiting:,} waiting: {took:.2f} ms, {word} {most} ms")
    few, many = str(RUNNING[0]), str(RUNNING[-1])
    growth = max(table[many][w] / table[few][w] for w in table[few])
    word = "no faster than linearly" if growth <= RUNNING[-1] / RUNNING[0] else "TOO FAST"
    print(f"{kind}: {many} running cost {growth:.1f} times what {few} cost: {word}")
    crowd = max(cells[str(WAITING[-1])] / cells[str(WAITING[0])] for cells in table.values())
    print(f"{kind}: with {WAITING[-1]:,} waiting at most {crowd:.2f} times what it costs with none")
    return {f"{kind} ms": took, f"{kind} growth": growth, f"{kind} crowd": crowd}


# ---- in the child ----


def run_child(running: int) -> None:
    """Both kinds of load for every number of waiting ones; prints ms of the mean step."""
    import torch

    torch.set_num_threads(1)
    kinds = {"steady": None, "churn": ANSWER}
    found = {
        f"{kind} {waiting}": step_seconds(running, waiting, STEPS, answer) * 1000
        for kind, answer in kinds.items()
        for waiting in WAITING
    }
    print(json.dumps(found))


def step_seconds(running: int, waiting: int, steps: int, answer: int | None) -> float:
    """CPU seconds of a step: the mean of so many, those included in which garbage is collected."""
    total = 0.0
    for batcher in itertools.islice(under_load(running, waiting, answer), steps):
        began = time.thread_time()
        batcher.step()
        total += time.thread_time() - began
    return total / steps


def under_load(running: int, waiting: int, answer: int | None) -> Iterator[Batcher]:
    """A batcher, again and again, ready for a step with so many running and so many waiting.

    Whoever asks for the next one has made the step. Those who left it are replaced.

    Args:
        answer: tokens that each request gets; who runs is at different places of it. None: so many
            that nobody leaves.
    """
    length = answer or ENDLESS
    limits = Limits(max_waiting=waiting + running, step_tokens=PROMPT * running + 512)
    batcher = Batcher(FakeModel(), small_cache(running, PROMPT + length), limits=limits)
    for place in range(running):
        batcher.submit(_request(length - (place % answer if answer else 0)))
    batcher.step()  # all prompts
    while True:
        while len(batcher.running) + len(batcher.waiting) < running + waiting:
            batcher.submit(_request(length))
        yield batcher


def _request(answer: int) -> Request:
    return Request([1] * PROMPT, SamplingParams(temperature=0.0, max_tokens=answer))


if __name__ == "__main__":
    run_child(int(sys.argv[2])) if "--child" in sys.argv[1:2] else main()
