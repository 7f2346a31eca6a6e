"""Chapter 04's live objects, driven beside the code under test.

Every function takes the module under test first and returns plain data. An exception that a case
does not expect is let through: it then names the line that raised it. `model` is the name of one of
the tiny models in tests/reference, "tied" or "untied".
"""

from contextlib import contextmanager

import torch
import torch.nn.functional as F

from solutions.loader import Config
from tests.reference.arrays import tiny_config, tiny_weights

JOINED = 0x200000  # added to the id of a character that a newline was joined with


class Packed:
    """A weight that only `packed_linear` can use: indexing or multiplying it is an error."""

    def __init__(self, tensor):
        self.hidden = tensor


def packed_linear(x, weight):
    """The product with a Packed weight."""
    return F.linear(x, weight.hidden)


def config_of(name: str, **changes) -> Config:
    """The Config of a tiny model, with some values changed."""
    return Config(**{**tiny_config(name), "eos_token_ids": (), **changes})


@contextmanager
def caught(found: dict, names: list):
    """Put an exception into found: its class names, and which of names its text leaves out."""
    try:
        yield
    except NotImplementedError:
        raise
    except Exception as error:
        found["raised"] = [kind.__name__ for kind in type(error).__mro__]
        found["unnamed"] = [name for name in names if str(name) not in str(error)]


def attempt(call, names: list) -> dict:
    """What a call that should fail did: {"raised", "unnamed"}, or {} when it did not."""
    found: dict = {}
    with caught(found, names):
        call()
    return found


# --- 4.4 ---


def feed_forward_packed(module, x, gate, up, down):
    """feed_forward with weights that only the given linear understands."""
    gate, up, down = Packed(gate), Packed(up), Packed(down)
    return module.feed_forward(x, gate, up, down, packed_linear)


# --- 4.5 ---


def kv_session(module, model: str, rows: int, max_length: int, dtype: str, steps: list) -> list:
    """The answers of one cache to a list of steps; [name, argument, ...] each.

    ["room"] asks for used_tokens, free_tokens and total_tokens; ["fails", names, step] expects
    the step to raise.
    """
    cache = module.KVCache(config_of(model), rows, max_length, getattr(torch, dtype))
    return [_kv_step(cache, *step) for step in steps]


def _kv_step(cache, name: str, *args):
    if name == "fails":
        return attempt(lambda: _kv_step(cache, *args[1]), args[0])
    if name == "room":
        return [cache.used_tokens, cache.free_tokens, cache.total_tokens]
    result = getattr(cache, name)(*args)
    return [t.clone() for t in result] if name == "read" else None


# --- 4.6 ---


def llama_session(module, model: str, calls: list, room: list | None) -> list:
    """The logits of several forwards on one model.

    Args:
        calls: {"tokens", "positions", "rows" or None, "every_position"} each; with "fails", the
            names that the message of the expected exception must have.
        room: tokens to reserve in each row of a cache, or None for no cache.
    """
    config = config_of(model)
    llama, cache = module.Llama(config, dict(tiny_weights(model))), None
    if room is not None:
        cache = module.KVCache(config, len(room), config.max_position_embeddings)
        for row, length in enumerate(room):
            if length:
                cache.reserve(row, length)
    return [_llama_call(llama, cache, **call) for call in calls]


def _llama_call(llama, cache, tokens, positions, rows, every_position, fails=None):
    def call():
        return llama.forward(tokens, positions, cache, rows, every_position)

    if fails is None:
        return call()
    found = attempt(call, fails)
    if cache is not None:
        found["kept"] = cache.read(0, torch.arange(cache.rows))[2]
    return found


def llama_packed(module, model: str, tokens, positions):
    """One forward whose matrices only the given linear understands; the lookup stays a tensor."""
    plain = "model.embed_tokens.weight"
    weights = {
        name: Packed(weight) if weight.ndim == 2 and name != plain else weight
        for name, weight in tiny_weights(model).items()
    }
    return module.Llama(config_of(model), weights, packed_linear).forward(tokens, positions)


def llama_attend(module, model: str, layer: int, x, positions, rotation):
    """The attention half of one layer, without a cache."""
    llama = module.Llama(config_of(model), dict(tiny_weights(model)))
    return llama.attend(layer, x, positions, rotation, None, torch.arange(len(x)))


# --- 4.7 ---


def chat(module, messages: list, special: dict, pieces: dict) -> list:
    """[ids, messages afterwards]. Pieces have known ids; the rest goes to `encode_letters`."""

    def encode(text):
        return list(pieces[text]) if text in pieces else encode_letters(text)

    return [module.chat_ids(messages, encode, special), messages]


def encode_letters(text: str) -> list[int]:
    """A tokenizer in miniature: one id a character, but a newline joins with what follows it."""
    ids, at = [], 0
    while at < len(text):
        joined = text[at] == "\n" and at + 1 < len(text)
        ids.append(100 + ord(text[at + joined]) + (JOINED if joined else 0))
        at += 1 + joined
    return ids


# --- 4.8 ---


class Scripted:
    """A model that says what a script says, if it is shown what it should be shown.

    It remembers the tokens that a cache would hold. When the tokens it can see are not the
    prompt and the script so far, each at its place, it says the last id of the vocabulary.
    """

    def __init__(self, config, prompt: list, script: list, events: list, fails_at: int | None):
        self.config, self.device = config, torch.device("cpu")
        self.story, self.start = [*prompt, *script], len(prompt)
        self.events, self.fails_at, self.calls, self.memory = events, fails_at, 0, {}

    def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
        """Logits that have one clear maximum."""
        used = None if cache is None else cache.used_tokens
        self.events.append(["forward", tokens.clone(), positions.clone(), used])
        self.calls += 1
        if self.fails_at == self.calls:
            raise ArithmeticError("the model failed on purpose")
        seen = self.memory if cache is not None else {}
        seen.update(zip(positions[0].tolist(), tokens[0].tolist(), strict=True))
        if cache is not None:
            self._write(cache, rows, positions)
        answers = [self._answer(seen, place) for place in positions[0].tolist()]
        logits = torch.stack([self._logits(answer) for answer in answers])
        return logits[None] if every_position else logits[-1:]

    def _write(self, cache, rows, positions) -> None:
        rows = torch.zeros(1, dtype=torch.long) if rows is None else rows
        shape = (1, self.config.num_key_value_heads, positions.shape[1], self.config.head_dim)
        for layer in range(self.config.num_hidden_layers):
            cache.write(layer, rows, positions, torch.zeros(shape), torch.zeros(shape))

    def _answer(self, seen: dict, place: int) -> int:
        history = [seen.get(i) for i in range(place + 1)]
        right = history == self.story[: place + 1] and self.start <= place + 1 < len(self.story)
        return self.story[place + 1] if right else self.config.vocab_size - 1

    def _logits(self, answer: int) -> torch.Tensor:
        logits = torch.linspace(-9.0, -1.0, self.config.vocab_size)
        logits[answer] = -0.5  # all are negative: their sizes say nothing about their order
        return logits


def greedy_scripted(module, setting: dict) -> dict:
    """One generate_greedy on a Scripted model: the answer, and what happened in which order.

    setting: "prompt", "script", "max_new_tokens", "end_ids", "context" of the model; "cached" is
    the max_length of a cache or None; "fails" is None, "model" or "on_token" for what is to raise
    an ArithmeticError, or the names that the message of an expected error must have.
    """
    config, events = config_of("tied", max_position_embeddings=setting["context"]), []
    fails = setting["fails"]
    fails_at = 2 if fails == "model" else None
    model = Scripted(config, setting["prompt"], setting["script"], events, fails_at)
    cache = module.KVCache(config, 2, setting["cached"]) if setting["cached"] else None

    def on_token(token):
        events.append(["token", token])
        if fails == "on_token":
            raise ArithmeticError("the listener failed on purpose")

    def call():
        prompt, count, end_ids = (setting[n] for n in ("prompt", "max_new_tokens", "end_ids"))
        found = module.generate_greedy(model, prompt, count, end_ids, cache, on_token)
        result.update(ids=found.ids, finish_reason=found.finish_reason)

    result: dict = {}
    if fails is None:
        call()
    else:
        result |= attempt(call, fails if isinstance(fails, list) else [])
    result["events"] = events
    result["used_after"] = None if cache is None else cache.used_tokens
    return result


def greedy_llama(module, model: str, prompt: list, count: int, cached: bool):
    """[ids, finish reason] of generate_greedy on the module's own Llama; nobody listens."""
    config = config_of(model)
    llama = module.Llama(config, dict(tiny_weights(model)))
    cache = module.KVCache(config, 1, config.max_position_embeddings) if cached else None
    found = module.generate_greedy(llama, prompt, count, (), cache)
    return [found.ids, found.finish_reason]
