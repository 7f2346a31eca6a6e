"""What chapter 04's scenarios share: models, expected exceptions, sentences for a learner."""

import functools
import re
from collections.abc import Callable
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from course.cases import describe
from tests.reference.arrays import tiny_config, tiny_weights


class Unusable(Exception):
    """What the code under test did cannot be judged further; the text is for the learner."""


def told(scenario: Callable) -> Callable:
    """Give {"unusable": text} back for an Unusable: tests/grading says it as Wrong."""

    @functools.wraps(scenario)
    def run(*args):
        try:
            return scenario(*args)
        except Unusable as error:
            return {"unusable": str(error)}

    return run


def in_words(value) -> str:
    """A returned value in a few words, the parts of a tuple or list one by one."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(describe, value))})"
    return describe(value)


def call_unchanged(name: str, call: Callable, **arguments):
    """call(**arguments), which must leave every argument here as it was."""
    before = {key: _copy(value) for key, value in arguments.items()}
    found = call(**arguments)
    for key, value in arguments.items():
        if not _same(before[key], value):
            raise Unusable(f"{name} changed its argument {key} in place")
    return found


def _copy(value):
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def _same(old, new) -> bool:
    if isinstance(old, torch.Tensor):
        return torch.equal(old, new)
    if isinstance(old, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    return old == new


@contextmanager
def fresh_memory_is_nan():
    """What torch.empty gives is NaN, not zeros by chance, so that reading it unwritten shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # this fills it
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def caught(found: dict, names: list):
    """Put an exception into found: its class names, and which of names its text leaves out."""
    try:
        yield
    except (NotImplementedError, Unusable):
        raise
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        found["raised"] = [kind.__name__ for kind in type(error).__mro__]
        found["unnamed"] = [name for name in names if not names_number(str(error), name)]


def names_number(text: str, number: int) -> bool:
    """Whether the number stands in a text by itself: 12 is not in "1234", but in "12,000/12"."""
    plain = re.sub(r"(?<=\d)[,_](?=\d{3}(?!\d))", "", text)
    return re.search(rf"(?<!\d){number}(?!\d)", plain) is not None


def attempt(call: Callable, names: list) -> dict:
    """What a call that should fail did: {"raised", "unnamed"}, or {} when it did not."""
    found: dict = {}
    with caught(found, names):
        call()
    return found


# --- models ---


class Packed:
    """A weight that only `packed_linear` can use: indexing or multiplying it is an error."""

    def __init__(self, tensor):
        self.hidden = tensor


def packed_linear(x, weight):
    """The product with a Packed weight."""
    return F.linear(x, weight.hidden)


def config_of(name: str, **changes):
    """The Config of a tiny model, with some values changed."""
    from solutions.config import Config  # here: chapter 02's scenarios must do without it

    return Config(**{**tiny_config(name), "eos_token_ids": (), **changes})


def llama_of(module, name: str, dtype: torch.dtype = torch.float32):
    """The module's own Llama with the weights of a tiny model."""
    weights = {key: weight.to(dtype) for key, weight in tiny_weights(name).items()}
    return module.Llama(config_of(name), weights)
