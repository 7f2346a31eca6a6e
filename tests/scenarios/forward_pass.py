"""Chapter 04's live objects, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `model` is the name of one of
the tiny models in tests/reference, "tied" or "untied".
"""

import torch
import torch.nn.functional as F

from tests.reference.arrays import tiny_weights
from tests.scenarios.helpers import (
    Packed,
    Unusable,
    attempt,
    call_unchanged,
    config_of,
    fresh_memory_is_nan,
    in_words,
    llama_of,
    packed_linear,
    told,
)
from tests.scenarios.scripted import Scripted

JOINED = 0x200000  # added to the id of a character that a newline was joined with


def on_views(module, name: str, *args):
    """A function on tensors that lie in memory in another order, as a transposed one does."""
    views = [_view(arg) if isinstance(arg, torch.Tensor) and arg.ndim > 2 else arg for arg in args]
    return getattr(module, name)(*views)


def _view(tensor):
    return tensor.transpose(-3, -2).contiguous().transpose(-3, -2)


# --- 4.4 ---


@told
def feed_forward_packed(module, x, gate, up, down):
    """feed_forward with weights that only the given linear understands."""
    gate, up, down = Packed(gate), Packed(up), Packed(down)

    def call(x):
        return module.feed_forward(x, gate, up, down, linear=packed_linear)

    return call_unchanged("feed_forward", call, x=x)


def feed_forward_doubled(module, x, gate, up, down):
    """feed_forward with a linear that gives twice the product, so that it shows where it is."""
    return module.feed_forward(x, gate, up, down, linear=lambda x, w: 2 * F.linear(x, w))


# --- 4.5 ---


@told
def kv_session(module, model: str, rows: int, max_length: int, dtype: str, steps: list) -> list:
    """The answers of one cache to a list of steps; [name, argument, ...] each.

    ["room"] asks for used_tokens, free_tokens and total_tokens; ["fails", names, step] expects
    the step to raise.
    """
    with fresh_memory_is_nan():
        cache = module.KVCache(config_of(model), rows, max_length, getattr(torch, dtype))
        return [_kv_step(cache, *step) for step in steps]


def _kv_step(cache, name: str, *args):
    if name == "fails":
        return attempt(lambda: _kv_step(cache, *args[1]), args[0])
    if name == "room":
        return [int(n) for n in (cache.used_tokens, cache.free_tokens, cache.total_tokens)]
    if name == "read":
        return _kv_read(cache, *args)
    if name == "write":
        return _kv_write(cache, *args)
    getattr(cache, name)(*args)
    return None


def _kv_read(cache, layer, rows) -> list:
    found = cache.read(layer, rows)
    tensors = isinstance(found, list | tuple) and all(torch.is_tensor(t) for t in found)
    if not tensors or len(found) != 3:
        raise Unusable(f"read should return (k, v, positions), but returned {in_words(found)}")
    return [t.clone() for t in found]


def _kv_write(cache, layer, rows, positions, k, v) -> None:
    """Write copies of k and v, and spoil them afterwards: the cache must have its own."""

    def call(rows, positions, k, v):
        cache.write(layer, rows, positions, k, v)

    k, v = k.clone(), v.clone()
    call_unchanged("write", call, rows=rows, positions=positions, k=k, v=v)
    k.fill_(77.0), v.fill_(77.0)


@told
def kv_pair(module, model: str, first: list, second: list) -> list:
    """Two caches of the same sizes, written one after the other at position 0: what each holds."""
    caches = [module.KVCache(config_of(model), 1, 2) for _ in range(2)]
    row, position = torch.tensor([0]), torch.tensor([[0]])
    for cache, (k, v) in zip(caches, (first, second), strict=True):
        cache.reserve(0, 1)
        cache.write(0, row, position, k, v)
    return [_kv_read(cache, 0, row) for cache in caches]


# --- 4.6 ---


class Behind:
    """A cache of another kind: of the module's own it shows what every kind has, and no storage."""

    def __init__(self, cache):
        self.write, self.read, self.reserve, self.free = (
            getattr(cache, name) for name in ("write", "read", "reserve", "free")
        )

    def __getattr__(self, name):
        raise AttributeError(f"a cache of another kind has no {name}: forward may use write, read")


@told
def llama_session(module, model: str, calls: list, rooms: list, kind: str, dtype: str) -> list:
    """The logits of several forwards on one model.

    Args:
        calls: {"tokens", "positions", "rows" or None, "every_position", "cache"} each, the last
            an index into rooms or None; with "fails", the names that the message of the expected
            exception must have.
        rooms: for each cache, the tokens to reserve in each of its rows.
        kind: "own" for the module's caches, "other" for one that has no more than it must.
        dtype: of weights and caches.
    """
    dtype = getattr(torch, dtype)
    llama = llama_of(module, model, dtype)
    caches = [_cache(module, llama.config, room, dtype) for room in rooms]
    if kind == "other":
        caches = [Behind(cache) for cache in caches]
    return [_llama_call(llama, caches, **call) for call in calls]


def _cache(module, config, room: list, dtype):
    cache = module.KVCache(config, len(room), config.max_position_embeddings, dtype)
    for row, length in enumerate(room):
        if length:
            cache.reserve(row, length)
    return cache


def _llama_call(llama, caches, tokens, positions, rows, every_position, cache, fails=None):
    cache = None if cache is None else caches[cache]

    def forward(tokens, positions, rows):
        named = {} if rows is None else {"rows": rows}  # else left out, as callers do
        return llama.forward(tokens, positions, cache, every_position=every_position, **named)

    def call():
        return call_unchanged("forward", forward, tokens=tokens, positions=positions, rows=rows)

    if fails is None:
        return call()
    found = attempt(call, fails)
    if cache is not None:
        found["kept"] = _kv_read(cache, 0, torch.arange(cache.rows))[2]
    return found


@told
def llama_packed(module, model: str, calls: list, room: list) -> list:
    """[logits, rows through the head] of each forward of a model whose matrices only `linear`
    understands; calls and room are those of llama_session.

    The embedding stays a tensor, because it is looked up in; a tied head is that tensor too, and
    `linear` gives twice its product, which shows where it was passed over.
    """
    embedding = "model.embed_tokens.weight"
    weights = {
        name: Packed(weight) if weight.ndim == 2 and name != embedding else weight
        for name, weight in tiny_weights(model).items()
    }
    head, rows = weights.get("lm_head.weight", weights[embedding]), []

    def linear(x, weight):
        if weight is head:
            rows.append(x.numel() // x.shape[-1])
        tied = weight is weights[embedding]
        return 2 * F.linear(x, weight) if tied else packed_linear(x, weight)

    llama, answers = module.Llama(config_of(model), weights, linear), []
    caches = [_cache(module, llama.config, room, torch.float32)]
    for call in calls:
        rows.clear()
        answers.append([_llama_call(llama, caches, **call), sum(rows)])
    return answers


@told
def llama_attend(module, model: str, layer: int, x, positions, rotation):
    """The attention half of one layer, without a cache."""
    llama = llama_of(module, model)

    def call(x, positions, rotation):
        return llama.attend(layer, x, positions, rotation, None, torch.arange(len(x)))

    return call_unchanged("attend", call, x=x, positions=positions, rotation=rotation)


# --- 4.7 ---


@told
def chat(module, messages: list, special: dict, pieces: dict) -> list:
    """[ids, messages afterwards]. Pieces have known ids; the rest goes to `encode_letters`."""

    def encode(text):
        return list(pieces[text]) if text in pieces else encode_letters(text)

    before = dict(special)
    ids = module.chat_ids(messages, encode, special)
    if special != before:
        raise Unusable("chat_ids changed its argument special in place")
    return [ids, messages]


def encode_letters(text: str) -> list[int]:
    """A tokenizer in miniature: one id a character, but a newline joins with what follows it."""
    ids, at = [], 0
    while at < len(text):
        joined = text[at] == "\n" and at + 1 < len(text)
        ids.append(100 + ord(text[at + joined]) + (JOINED if joined else 0))
        at += 1 + joined
    return ids


# --- 4.8 ---

BREAKS = {"the first forward": 1, "the second forward": 2, "on_token": 0}  # a forward's number
ERRORS = {kind.__name__: kind for kind in (ArithmeticError, KeyboardInterrupt, SystemExit)}
NEIGHBOUR = 3  # tokens that somebody else has reserved in row 1


@told
def greedy_scripted(module, setting: dict) -> dict:
    """One generate_greedy on a Scripted model: the answer, and what happened in which order.

    setting: "prompt", "script", "max_new_tokens", "end_ids", "context" of the model; "cached" is
    the max_length of a cache or None; "kind" is what prompt and end_ids are: "list", "tuple", or
    "set" or "frozenset" (of end ids; the prompt is then a tuple); "fails" is None or the names
    that the message of an expected error must have; "breaks" is None or [where, what]: one of
    BREAKS, which raises one of ERRORS.
    """
    config, events = config_of("tied", max_position_embeddings=setting["context"]), []
    fails, (where, what) = setting["fails"], setting["breaks"] or (None, None)
    broken = {BREAKS[where]: ERRORS[what]} if where else {}
    model = Scripted(config, setting["prompt"], setting["script"], events, broken)
    cache = module.KVCache(config, 2, setting["cached"]) if setting["cached"] else None
    if cache is not None:
        cache.reserve(1, NEIGHBOUR)

    def on_token(token):
        events.append(["token", token])
        if 0 in broken:
            raise broken[0]("the listener failed on purpose")

    def generate(prompt, end_ids):
        count = setting["max_new_tokens"]
        return module.generate_greedy(model, prompt, count, end_ids, cache, on_token)

    def call():
        kind = {k.__name__: k for k in (list, tuple, set, frozenset)}[setting["kind"]]
        prompt = list(setting["prompt"]) if kind is list else tuple(setting["prompt"])
        ends = kind(setting["end_ids"])
        result.update(_generation(call_unchanged("it", generate, prompt=prompt, end_ids=ends)))

    result: dict = {}
    if fails is None:
        call()
    else:
        result |= attempt(call, fails)
    result["events"] = events
    if cache is not None:
        result["used_after"] = int(cache.used_tokens)
        result["held_after"] = _kv_read(cache, 0, torch.tensor([0]))[2].shape[-1]
    return result


def _generation(found) -> dict:
    if not all(hasattr(found, name) for name in ("ids", "finish_reason")):
        told = f"but returned {in_words(found)}"
        raise Unusable(f"generate_greedy should return Generation(ids, finish_reason), {told}")
    return {"ids": found.ids, "finish_reason": found.finish_reason}


@told
def greedy_llama(module, model: str, prompt: list, count: int, cached: bool):
    """[ids, finish reason] of generate_greedy on the module's own Llama; nobody listens."""
    llama = llama_of(module, model)
    config = llama.config
    cache = module.KVCache(config, 1, config.max_position_embeddings) if cached else None
    found = _generation(module.generate_greedy(llama, prompt, count, (), cache))
    return [found["ids"], found["finish_reason"]]
