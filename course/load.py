"""`python -m course load`: requests at a rate of your choice, and how long each has to wait.

An open loop: requests go out when they are due, whether or not the last has come back (why:
course/load_client.py). Prints percentiles, throughput and refusals, says when it was itself too
slow to be believed, draws a plot, and writes the file that the upgrade gate compares.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import replace

from tqdm import tqdm

from course import load_file, load_plot
from course.load_arguments import parse
from course.load_client import PATIENCE, LoadError, Target, find_model, open_loop, send
from course.load_figures import ANSWERED, NO_SERVER, REJECTED, Outcome
from course.load_plan import Planned, plan, times
from course.load_report import Round, report
from course.words import counted

GONE_AFTER = 3  # requests one after the other that find no server


def main(argv: list[str]) -> int:
    """The verb; the exit code: 0 when something was answered."""
    args = parse(argv)
    target = Target(
        args.url,
        args.model or "",
        args.chat,
        args.stream,
        args.api_key,
        args.temperature,
        args.ignore_eos,
    )
    rounds: list[Round] = []
    try:
        for path in filter(None, (args.out, args.plot)):
            load_file.free_place(path)
        due = {rate: times(rate, args.seed, args.requests, args.seconds) for rate in args.rates}
        print(_opening(args, due), file=sys.stderr)
        target = asyncio.run(_run(target, args, due, rounds))
    except (LoadError, ValueError) as problem:
        _print(rounds)
        print(f"load: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _print(rounds)
        print("\nload: stopped; this is what there was. No file was written.", file=sys.stderr)
        return 130
    _print(rounds)
    try:
        return _keep(args, target, rounds)
    except ValueError as problem:
        print(f"load: {problem}", file=sys.stderr)
        return 1


def _print(rounds: list[Round]) -> None:
    """The report, if anything was sent."""
    if any(made.outcomes for made in rounds):
        print(report(rounds))


def _keep(args: argparse.Namespace, target: Target, rounds: list[Round]) -> int:
    """Write what was asked for; the exit code."""
    if not any(o.kind == ANSWERED for made in rounds for o in made.outcomes):
        print("load: no request was answered; no file was written", file=sys.stderr)
        return 1
    if args.out:  # before the plot: it cannot be had again
        found = load_file.document(
            rounds,
            settings(args),
            target.model,
            target.url,
            load_file.now(),
            load_file.machine(),
            load_file.packages(),
        )
        load_file.write(args.out, found)
        print(f"figures: {args.out}")
    if args.plot:
        load_plot.save(args.plot, rounds, f"{target.model} at {target.url}")
        print(f"plot: {args.plot}")
    return 0


def settings(args: argparse.Namespace) -> dict:
    """What has to be equal in two runs that are compared. Never the API key."""
    single = {"rate": args.rates[0]} if len(args.rates) == 1 else {"rates": args.rates}
    return single | {
        "requests": args.requests,
        "seconds": args.seconds,
        "seed": args.seed,
        "repeat": args.repeat,
        "prompt_tokens": str(args.prompt_tokens),
        "output_tokens": str(args.output_tokens),
        "chat": args.chat,
        "stream": args.stream,
        "temperature": args.temperature,
        "ignore_eos": args.ignore_eos,
    }


async def _run(
    target: Target, args: argparse.Namespace, due: dict[float, list[float]], rounds: list[Round]
) -> Target:
    """Every rate, every repetition, into `rounds`; the target with its model's name.

    Errors: LoadError when the server is not there, does not answer one request, or goes away.
    """
    total = args.repeat * sum(map(len, due.values()))
    async with target.client() as client:
        named = target.model or await find_model(client, target.url)
        target = replace(target, model=named)
        await _try_one(client, target)
        with tqdm(total=total, desc="load", unit="request", disable=None) as bar:
            for rate, at in due.items():
                for repetition in range(args.repeat):
                    requests = plan(
                        at, args.seed, args.prompt_tokens, args.output_tokens, repetition
                    )
                    rounds.append(Round(rate))
                    await _one_round(client, target, requests, rounds[-1], bar)
    return target


async def _try_one(client, target: Target) -> None:
    """One short request that is not counted: connections and caches are warm after it."""
    outcome = Outcome(0.0)
    waiting = asyncio.get_running_loop().call_later(PATIENCE, _say_waiting, target)
    try:
        await send(client, target, Planned(0.0, "the", 2), outcome, time.perf_counter)
    finally:
        waiting.cancel()
    if outcome.kind == REJECTED:
        raise LoadError(f"{target.url} refuses the first request already: wait until it is ready")
    if outcome.kind != ANSWERED:
        raise LoadError(
            f"{target.url} did not answer a first short request ({outcome.kind}): "
            "see its log, and whether it wants --api-key or another --model"
        )


def _say_waiting(target: Target) -> None:
    """What happens while nothing does."""
    print(
        f"no answer yet to a first short request, after {PATIENCE:g} s; it is given up when "
        f"nothing comes for {target.timeout:g} s",
        file=sys.stderr,
    )


async def _one_round(client, target: Target, requests: list[Planned], made: Round, bar) -> None:
    """One repetition at one rate. Errors: LoadError when the server has gone."""
    began, used, misses = time.perf_counter(), time.process_time(), 0

    def clock() -> float:
        return time.perf_counter() - began

    async def one(planned: Planned, outcome: Outcome) -> None:
        nonlocal misses
        await send(client, target, planned, outcome, clock)
        misses = misses + 1 if outcome.kind == NO_SERVER else 0
        bar.update()

    def stop() -> bool:
        return misses >= GONE_AFTER

    try:
        await open_loop(requests, one, made.outcomes, clock, stop=stop)
    finally:
        made.busy = (time.process_time() - used) / clock()
    if stop():
        answered = sum(o.kind == ANSWERED for o in made.outcomes)
        raise LoadError(
            f"the server at {target.url} has gone, after {counted(answered, 'answer')} at "
            f"{made.rate:g} requests/s: look into its log"
        )
    made.whole = True


def _opening(args: argparse.Namespace, due: dict[float, list[float]]) -> str:
    """What is about to happen, and about how long it takes when the server keeps up."""
    seconds = args.repeat * sum(at[-1] for at in due.values())
    requests = counted(args.repeat * sum(map(len, due.values())), "request")
    return (
        f"prompts: {args.prompt_tokens}; answers, at most: {args.output_tokens}; seed {args.seed}; "
        f"{requests} in {seconds:.0f} s or more"
    )
