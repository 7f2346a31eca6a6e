"""Tokens a second on answers of very different lengths: continuous, static, transformers' static.

python -m course bench batching
"""

import json
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import kit

ROUNDS = 3
CONTENDERS = ("continuous", "static", "transformers")
COUNT = 48  # requests
BATCH = 8  # at once
SEED = 6
MEDIAN, SIGMA, SHORTEST, LONGEST = 16, 1.25, 2, 192  # of the answers, in tokens: lognormal, cut
PROMPTS = 8, 48  # tokens, uniform


@dataclass(frozen=True)
class Work:
    """Prompts, and how many tokens each is to be answered with; all arrive at once."""

    prompts: list[list[int]]
    answers: list[int]

    @property
    def batches(self) -> list["Work"]:
        """In the order of arrival, BATCH at a time."""
        starts = range(0, len(self.prompts), BATCH)
        return [Work(self.prompts[i : i + BATCH], self.answers[i : i + BATCH]) for i in starts]


def workload(vocabulary: int, count: int = COUNT, seed: int = SEED) -> Work:
    """Random ids: what is measured is the work, and that depends on the lengths only."""
    rng = random.Random(seed)
    lengths = [rng.randint(*PROMPTS) for _ in range(count)]
    prompts = [[rng.randrange(100, vocabulary) for _ in range(n)] for n in lengths]
    drawn = [MEDIAN * rng.lognormvariate(0, SIGMA) for _ in range(count)]
    return Work(prompts, [min(LONGEST, max(SHORTEST, round(length))) for length in drawn])


def main() -> None:
    """All contenders in turns, a process of its own each time; then speeds, ratios and waste."""
    from course.model import ensure_model

    folder = str(ensure_model())
    found = kit.in_turns(
        CONTENDERS, lambda name: kit.child(__file__, "--child", name, folder), ROUNDS
    )
    kit.say_machine()
    _say_work()
    print(f"{ROUNDS} rounds, medians; float32, greedy, end tokens ignored\n")
    print(
        f"{'contender':14}{'seconds':>9}{'spread':>8}{'tokens/s':>10}{'forwards':>10}{'useful':>8}"
    )
    for name in CONTENDERS:
        _print_row(name, found[name])
    if any(kit.spread(runs, "seconds") > 0.2 for runs in found.values()):
        print("A spread over 20 %: something else used the machine. Measure again.")
    speeds = {name: kit.median(found[name], "speed") for name in CONTENDERS}
    ratios = {
        "continuous over static": speeds["continuous"] / speeds["static"],
        "continuous over transformers": speeds["continuous"] / speeds["transformers"],
        "static over transformers": speeds["static"] / speeds["transformers"],
    }
    print()
    for words, ratio in ratios.items():
        print(f"{words}: {ratio:.2f} times the tokens a second")
    print("claimed: continuous is over 3 times static")
    kit.save("batching", {"rounds": ROUNDS, "runs": found, "ratios": ratios})


def _say_work() -> None:
    """The workload in one sentence, with what a static batch would lose at best."""
    work = workload(1000)
    places = sum(max(batch.answers) * len(batch.answers) for batch in work.batches)
    print(
        f"{COUNT} requests, {BATCH} at once; prompts of {PROMPTS[0]} to {PROMPTS[1]} tokens; "
        f"answers lognormal (median {MEDIAN}, sigma {SIGMA}), cut to {SHORTEST} to {LONGEST}: "
        f"mean {statistics.mean(work.answers):.1f}, median {statistics.median(work.answers):.0f}, "
        f"longest {max(work.answers)}; seed {SEED}. Every {BATCH} as long as their longest would "
        f"be {places / sum(work.answers):.2f} times the tokens"
    )


def _print_row(name: str, results: list) -> None:
    seconds, apart = kit.median(results, "seconds"), kit.spread(results, "seconds")
    speed, useful = kit.median(results, "speed"), kit.median(results, "useful")
    forwards = kit.median(results, "forwards")
    print(f"{name:14}{seconds:9.1f}{apart:8.0%}{speed:10.1f}{forwards:10.0f}{useful:8.0%}")


# ---- in the child ----


def run_child(name: str, folder: str, count: str = str(COUNT)) -> None:
    """Answer the whole workload once.

    Prints seconds, new tokens a second, forwards, and the share of places computed that were useful
    (a place is one token's worth of a forward; those of a prompt count).
    """
    run = {"continuous": _continuous, "static": _static, "transformers": _transformers}[name]
    answer, vocabulary = run(Path(folder))
    answer(workload(vocabulary, 2, seed=0))  # the first call of each operation is slower
    work = workload(vocabulary, int(count))
    began = time.perf_counter()
    tokens, forwards, places = answer(work)
    seconds = time.perf_counter() - began
    if tokens != sum(work.answers):
        raise SystemExit(f"{name} made {tokens} tokens, not {sum(work.answers)}")
    useful = sum(map(len, work.prompts)) + tokens - len(work.prompts)  # the last is never fed
    found = {"seconds": seconds, "speed": tokens / seconds, "forwards": forwards}
    print(json.dumps(found | {"useful": useful / places}))


def _continuous(folder: Path):
    """The batcher; who came first is let in first, as in the static batches."""
    from course.assemble import assemble
    from solutions.batcher import Batcher, Limits
    from solutions.request import Request
    from solutions.sampling_params import SamplingParams

    engine = assemble(folder)

    def answer(work: Work) -> tuple[int, int, int]:
        cache = engine.new_cache(BATCH, PROMPTS[1] + LONGEST)
        limits = Limits(max_waiting=len(work.prompts), patience=0.0)
        batcher = Batcher(engine.model, cache, limits=limits)
        made = []
        for prompt, count in zip(work.prompts, work.answers, strict=True):
            params = SamplingParams(temperature=0.0, max_tokens=count)
            made.append(Request(prompt, params))
            batcher.submit(made[-1])
        forwards = places = 0
        while not batcher.idle:
            step = batcher.step()
            forwards += bool(step.decode) + bool(step.prefill)
            places += step.places
        return sum(len(request.output) for request in made), forwards, places

    return answer, engine.config.vocab_size


def _static(folder: Path):
    """Chapter 06's static batch, one after the other."""
    from course.assemble import assemble
    from solutions.static_batching import generate_static

    engine = assemble(folder)

    def answer(work: Work) -> tuple[int, int, int]:
        cache = engine.new_cache(BATCH, PROMPTS[1] + LONGEST)
        made = [
            generate_static(engine.model, cache, batch.prompts, batch.answers)
            for batch in work.batches
        ]
        tokens = sum(len(answer.ids) for batch in made for answer in batch.answers)
        forwards = sum(max(batch.answers) for batch in work.batches)
        return tokens, forwards, sum(batch.places for batch in made)

    return answer, engine.config.vocab_size


def _transformers(folder: Path):
    """Its generate on the same batches: padded on the left, everybody as long as the longest."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def answer(work: Work) -> tuple[int, int, int]:
        tokens = forwards = places = 0
        for batch in work.batches:
            count, width = max(batch.answers), max(map(len, batch.prompts))
            blank = [width - len(prompt) for prompt in batch.prompts]
            ids = [[0] * n + prompt for n, prompt in zip(blank, batch.prompts, strict=True)]
            mask = [[0] * n + [1] * (width - n) for n in blank]
            out = model.generate(
                torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                do_sample=False,
                min_new_tokens=count,
                max_new_tokens=count,
                pad_token_id=0,
            )
            if out.shape[1] != width + count:
                raise SystemExit(f"transformers made {out.shape[1] - width} tokens, not {count}")
            tokens += sum(batch.answers)
            forwards += count
            places += len(ids) * (width + count - 1)
        return tokens, forwards, places

    return answer, model.config.vocab_size


if __name__ == "__main__":
    run_child(*sys.argv[2:]) if "--child" in sys.argv[1:2] else main()
