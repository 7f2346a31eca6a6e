"""Cases run against a module, here or in a worker, and what happened in each."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from course import wire
from course.cases import Case, Wrong, describe
from course.remote import Gone
from course.runner import Runner
from course.wire import Raised

TEMPORARY = re.compile(r"(['\"])[^'\"]*[/\\]course-files-[^/\\'\"]*[/\\]*")  # gone when read


class Learner:
    """What a case calls: every attribute is a function of the module under test.

    Keeps a trace of the calls and of what came back, for the messages and for the comparison with
    the misconceptions.
    """

    def __init__(self, backend):
        self._backend = backend
        self.trace: list[tuple[str, object]] = []
        self.printed = ""

    def __getattr__(self, name: str) -> Callable:
        return lambda *args, **kwargs: self._ask("call", name, args, kwargs)

    def scenario(self, name: str, *args):
        """Run a scenario function beside the learner's code and return its trace."""
        return self._ask("scenario", name, args, {})

    def _ask(self, do: str, name: str, args: tuple, kwargs: dict):
        call = f"{name}({_arguments(args, kwargs)})"
        if do == "scenario":
            call += ", a series of calls of your code"
        self.trace.append((call, None))
        request = {"do": do, "name": name, "args": args, "kwargs": kwargs}
        reply = self._backend.answer(request)
        if "unsendable" in reply:
            raise Wrong(f"it returned what cannot be compared ({reply['unsendable']})")
        self.printed += reply["printed"]
        outcome = reply["raised"] if "raised" in reply else reply["value"]
        self.trace[-1] = (call, outcome)
        if "raised" in reply:
            raise outcome
        if reply["changed"] and do == "call":
            raise Wrong(f"it changed its argument number {reply['changed'][0] + 1} in place")
        return outcome


@dataclass
class Outcome:
    """One case run once."""

    case: Case
    learner: Learner
    error: Exception | None = None


class Local:
    """A backend in this process, for code of ours; data is copied as if it had travelled."""

    def __init__(self, runner: Runner):
        self.runner = runner

    def answer(self, request: dict) -> dict:
        """See Runner.answer."""
        return _travel(self.runner.answer(_travel(request)))


def run_cases(backend, cases: list[Case], seed: int) -> Iterator[Outcome]:
    """Every case in turn; ends early when the worker is gone."""
    for case in cases:
        outcome = Outcome(case, Learner(backend))
        try:
            case.run(outcome.learner, case.rng(seed))
        except (Wrong, Raised, Gone) as error:
            outcome.error = error
        except Exception as error:  # a case that trips over what the learner returned
            last = outcome.learner.trace[-1][1] if outcome.learner.trace else None
            outcome.error = Wrong(
                f"it returned {describe(last)}, which is unusable here: {error!r}"
            )
        yield outcome
        if isinstance(outcome.error, Gone):
            return


def _arguments(args: tuple, kwargs: dict) -> str:
    shown = [_shown(arg) for arg in args]
    shown += [f"{name}={_shown(value)}" for name, value in kwargs.items()]
    return ", ".join(shown)


def _shown(value, limit: int = 240) -> str:
    text = TEMPORARY.sub(r"\1", repr(_summary(value)))
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"  # the last matters


def _summary(value):
    """The value with every tensor in it as its dtype and shape, or a small one of ints as it is."""
    if isinstance(value, Tensor):
        few = value.dtype == torch.int64 and value.numel() <= 24
        return value.tolist() if few else _Words(describe(value))
    if isinstance(value, list | tuple):
        return type(value)(map(_summary, value))
    if isinstance(value, dict):
        return {key: _summary(item) for key, item in value.items()}
    return value


class _Words(str):
    """Text that shows without quotes."""

    __repr__ = str.__str__


def _travel(message: dict) -> dict:
    stream = io.BytesIO()
    wire.send(stream, message)
    stream.seek(0)
    return wire.receive(stream)
