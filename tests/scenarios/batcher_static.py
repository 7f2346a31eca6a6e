"""Chapter 06 beside the code under test: padding and static batches.

Every scenario takes the module under test first and returns plain data.
"""

from solutions import forward_pass
from solutions.kv_cache import CacheFull, KVCache
from tests.scenarios.batcher_models import Teller, new_cache
from tests.scenarios.batcher_requests import KINDS
from tests.scenarios.helpers import Unusable, attempt, call_unchanged, in_words, llama_of, told


@told
def pads(module, calls: list) -> list:
    """What pad makes of each call's arguments: [tokens, positions], or what it raised.

    Each call is {"sequences", "starts" (None: left out), "kind" of the sequences, "fails"}.
    """
    return [_pad(module, **call) for call in calls]


def _pad(module, sequences, starts=None, kind="list", fails=None):
    sequences = KINDS[kind](KINDS[kind](ids) for ids in sequences)
    given = {} if starts is None else {"starts": KINDS[kind](starts)}

    def call():
        return call_unchanged("pad", module.pad, sequences=sequences, **given)

    return attempt(call, fails) if fails is not None else _pair(call())


def _pair(found) -> list:
    if not isinstance(found, list | tuple) or len(found) != 2:
        raise Unusable(f"pad should return (tokens, positions), but returned {in_words(found)}")
    return list(found)


@told
def pad_on_meta(module) -> list:
    """The devices of what pad makes for torch's meta device, which only knows shapes."""
    return [str(tensor.device) for tensor in _pair(module.pad([[1, 2], [3]], device="meta"))]


@told
def static_told(module, setting: dict) -> dict:
    """One generate_static on a Teller, with all that happened.

    setting: "prompts", "counts", "ends"; "kind" of these; "rows" and "length" of the cache;
    "context" of the model; "breaks" (number and error) of its forwards; "full": the row that the
    cache has no room in, or None; "fails": None, or the names that the message of the expected
    error must have.
    """
    events: list = []
    model = Teller(events, dict(setting["breaks"]), setting["context"])
    cache, rooms = new_cache(setting["rows"], setting["length"]), []
    cache.reserve = _full_at(setting["full"], cache.reserve)
    model.during = lambda: rooms.append(int(cache.used_tokens))
    kind = KINDS[setting["kind"]]
    ordered = kind if kind in (list, tuple) else tuple

    def run(prompts, counts, ends):
        return module.generate_static(model, cache, prompts, counts, ends)

    def call():
        prompts = ordered(ordered(ids) for ids in setting["prompts"])
        given = {"prompts": prompts, "counts": ordered(setting["counts"])}
        found = call_unchanged("generate_static", run, **given, ends=kind(setting["ends"]))
        result.update(_static_batch(found))

    result: dict = {}
    if setting["fails"] is None:
        call()
    else:
        result |= attempt(call, setting["fails"])
    forwards = [[tokens, places] for _, _, tokens, places, _ in events]
    shapes = [shape for *_, shape in events]
    return result | {
        "forwards": forwards,
        "shapes": shapes,
        "rooms": rooms,
        "used_after": int(cache.used_tokens),
        "held_after": cache.lengths.tolist(),
    }


def _full_at(full: int | None, reserve):
    """reserve, but one row has no room."""

    def reserve_or_raise(row, length):
        if row == full:
            raise CacheFull(f"row {row} is full on purpose")
        reserve(row, length)

    return reserve_or_raise


def _static_batch(found) -> dict:
    try:
        answers = [[list(one.ids), one.finish_reason] for one in found.answers]
        return {"answers": answers, "useful": found.useful, "wasted": found.wasted}
    except (AttributeError, TypeError) as problem:
        raise Unusable(
            f"generate_static should return a StaticBatch, but returned {in_words(found)}"
            f" ({problem})"
        ) from None


@told
def static_llama(module, model: str, prompts: list, counts: list) -> list:
    """[ids, finish reason] of each answer of a real tiny model."""
    llama = llama_of(forward_pass, model)
    cache = KVCache(llama.config, len(prompts), llama.config.max_position_embeddings)
    return _static_batch(module.generate_static(llama, cache, prompts, counts, ()))["answers"]
