"""Chapter 06 beside the code under test: one request and its end.

Every scenario takes the module under test first and returns plain data.
"""

import gc
import tracemalloc
from types import SimpleNamespace

import torch

from solutions.sampling_params import SamplingParams
from tests.scenarios.batcher_models import ERRORS
from tests.scenarios.helpers import (
    Unusable,
    attempt,
    told,
)

KINDS = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}


def request_of(module, prompt, max_tokens=5, **fields):
    """A Request of the module under test."""
    return module.Request(prompt, SamplingParams(max_tokens=max_tokens), **fields)


def snapshot(request) -> dict:
    """Where a request stands, as plain data."""
    return {
        "state": str(request.state),
        "prompt": list(request.prompt),
        "output": list(request.output),
        "logprobs": list(request.logprobs),
        "limit": request.limit,
        "row": request.row,
        "computed": request.computed,
        "size": request.size,
        "remaining": request.remaining,
        "finish_reason": request.finish_reason,
        "error": None if request.error is None else repr(request.error),
        "remembered": request.sampling is not None,
    }


@told
def request_session(module, fields: dict, steps: list) -> list:
    """What one request answers to each step, and where it stands after it.

    Steps: ["set", name, value] of a field; ["state", name] to set a state; ["heard"] gives what
    the sampler's memory was told; ["get", name] reads a property; or a method's name and its
    arguments; ["fails", names, step] is one that should raise. An error for finish travels as text.
    """
    heard: list = []
    request = request_of(module, **fields)
    request.sampling = SimpleNamespace(add=heard.append)
    return [[_request_step(module, request, heard, *step), snapshot(request)] for step in steps]


def _request_step(module, request, heard, name, *args):
    if name == "fails":
        return attempt(lambda: _request_step(module, request, heard, *args[1]), args[0])
    if name == "heard":
        return list(heard)
    if name == "get":
        return getattr(request, args[0])
    if name == "set":
        return setattr(request, *args)
    if name == "state":
        return setattr(request, "state", module.State(args[0]))
    if name == "move":
        args = [module.State(args[0])]
    if name == "finish" and len(args) > 1:
        args = [args[0], ValueError(args[1])]
    found = getattr(request, name)(*args)
    return found if name == "upcoming" else None


@told
def request_pair(module) -> list:
    """Two requests of the same list: what the second has after the first and the list changed."""
    prompt = [5, 6, 7]
    first, second = request_of(module, prompt), request_of(module, prompt)
    first.fit(8, 50)
    first.move(module.State.PREFILL)
    first.move(module.State.DECODE)
    first.add(9)
    prompt.append(8)
    return [snapshot(first), snapshot(second)]


@told
def upcoming_bytes(module, length: int) -> list:
    """[what upcoming(1) gives, whether it took less than a tenth of the answer's memory]."""
    request = request_of(module, [1, 2], length + 1)
    request.output.extend(range(length))
    request.computed = length + 1
    request.upcoming(1)
    gc.collect()
    tracemalloc.start()
    found = request.upcoming(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [found, peak < length * 8 / 10]


class Listener:
    """on_token: notes what it gets and how the request stood, and returns or raises as told."""

    def __init__(self, answers: dict):
        self.answers, self.heard, self.request = answers, [], None

    def __call__(self, token):
        request = self.request
        self.heard.append([token, list(request.output), len(request.logprobs), str(request.state)])
        answer = self.answers.get(len(self.heard))
        if isinstance(answer, str) and answer in ERRORS:
            raise ERRORS[answer]("the listener failed on purpose")
        return answer


@told
def emit_session(module, setting: dict) -> dict:
    """Tokens through emit, one by one, until a reason is given or it raises.

    setting: "limit", the "context" that clamps it, "ignore_eos", "ends" and their "kind", "tokens",
    "answers" of the listener by the number of its call (None: nobody listens), "told": whether
    log-probabilities come with it.
    """
    answers = setting["answers"]
    listener = None if answers is None else Listener(dict(answers))
    request = request_of(
        module, [1, 2], setting["limit"], ignore_eos=setting["ignore_eos"], on_token=listener
    )
    request.fit(setting.get("context", 100), 101)
    request.state = module.State.DECODE
    if listener:
        listener.request = request
    ends, reasons, raised = KINDS[setting["kind"]](setting["ends"]), [], {}
    for token in setting["tokens"]:
        note = ([f"about {token}"] if setting["told"] else []) + []

        def call(token=token, note=note):
            reasons.append(module.emit(request, token, ends, *note))

        if answers is not None and any(isinstance(a, str) for a in answers.values()):
            raised = raised or attempt(call, [])
        else:
            call()
        if raised or reasons[-1] is not None:
            break
    heard = listener.heard if listener else []
    return {"reasons": reasons, "heard": heard, "raised": raised, **snapshot(request)}


@told
def end_session(module, calls: list, breaks: str | None, listens: bool = True) -> dict:
    """end, several times: what each gave, what on_finish saw, and how the request stands.

    Args:
        calls: [reason, text of an error or None] each.
        breaks: the name of the exception that on_finish raises.
    """
    seen: list = []

    def on_finish(request):
        seen.append([request is made, snapshot(request)])
        if breaks:
            raise thrown
        return ValueError("returned, not raised")

    thrown = ERRORS[breaks]("the listener failed on purpose") if breaks else None
    made = request_of(module, [1, 2], on_finish=on_finish if listens else None)
    made.sampling = SimpleNamespace(add=None)
    answers = []
    for reason, text in calls:
        error = None if text is None else ValueError(text)
        found: dict = {}

        def call(reason=reason, error=error, found=found):
            found["returned"] = module.end(made, *((reason,) if error is None else (reason, error)))

        raised = attempt(call, [])
        returned = found.get("returned")
        same = returned is thrown if thrown is not None else returned is None
        answers.append([same and "returned" in found, raised.get("raised", [None])[0]])
    return {"answers": answers, "seen": seen, **snapshot(made)}


@told
def usable(module, logits, dtype: str) -> list:
    """usable_rows of the logits in a dtype."""
    given = logits.to(getattr(torch, dtype))
    kept = given.clone()
    found = module.usable_rows(given)
    if not torch.equal(kept.nan_to_num(0.5), given.nan_to_num(0.5)):
        raise Unusable("usable_rows changed its argument logits in place")
    return list(found) if isinstance(found, tuple) else found
