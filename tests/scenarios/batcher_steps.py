"""Chapter 06 beside the code under test: plans, chunks, and the books.

Every scenario takes the module under test first and returns plain data.
"""

from types import SimpleNamespace

import torch

from solutions import forward_pass
from solutions.kv_cache import KVCache
from tests.scenarios.batcher_models import Teller, new_cache
from tests.scenarios.batcher_requests import request_of
from tests.scenarios.helpers import Unusable, attempt, in_words, llama_of, told

# --- 6.5 ---


def standing(module, stand: dict):
    """A Request that has come some way: "name", "state", "row", "prompt", "output", "computed".

    Its "id" is the name where none is given, its "limit" 50.
    """
    request = request_of(module, stand["prompt"], 50, id=stand.get("id", stand["name"]))
    request.limit = stand.get("limit", 50)
    request.state, request.row = module.State(stand["state"]), stand["row"]
    request.output, request.computed = list(stand["output"]), stand["computed"]
    return request


def _stand(request) -> list:
    return [str(request.state), request.row, request.computed, list(request.output)]


def _chunk_names(chunks) -> list:
    try:
        return [[request.id, count] for request, count in chunks]
    except (TypeError, ValueError, AttributeError):
        raise Unusable(f"pairs of a request and a number are needed, not {in_words(chunks)}") from (
            None
        )


@told
def plans(module, calls: list) -> list:
    """What plan_step makes of each call: {"running" (how they stand), "budget", "fails" or None}.

    [decodes, prefills, places], or what it raised. The requests come from a generator.
    """
    return [_plan(module, **call) for call in calls]


def _plan(module, running, budget, fails=None):
    requests = [standing(module, stand) for stand in running]
    before = [_stand(request) for request in requests]

    def call():
        return module.plan_step((request for request in requests), budget)

    if fails is not None:
        return attempt(call, fails)
    found = call()
    if before != [_stand(request) for request in requests]:
        raise Unusable("plan_step changed a request")
    if not hasattr(found, "decodes") or not hasattr(found, "prefills"):
        raise Unusable(f"plan_step should return a Plan, but returned {in_words(found)}")
    return [_chunk_names(found.decodes), _chunk_names(found.prefills), found.places]


@told
def computes(module, stands: list, forwards: list, breaks: dict) -> dict:
    """Chunks of requests through compute, on a Teller.

    Args:
        stands: the requests; each has 40 tokens of room in its row.
        forwards: chunks [[name, count], ...] of each call of compute.
        breaks: {number of a forward: error}.

    Returns:
        "answers": for each call the names that are complete, and the most probable token of each
        (None where there are no logits), or what it raised; "stands" after each; "events".
    """
    events: list = []
    model, cache = Teller(events, breaks), new_cache(4, 40)
    made = {stand["name"]: standing(module, stand) for stand in stands}
    for request in made.values():
        cache.reserve(request.row, 40)
    answers, after = [], []
    for chunks in forwards:
        pairs = [(made[name], count) for name, count in chunks]
        answer: list = []

        def call(pairs=pairs, answer=answer):
            answer.append(_completed(module.compute(model, cache, pairs)))

        raised = attempt(call, [])
        answers.append(answer[0] if answer else raised)
        after.append([made[stand["name"]].computed for stand in stands])
    return {"answers": answers, "computed": after, "events": events}


def _completed(found) -> list:
    if not isinstance(found, list | tuple) or len(found) != 2:
        raise Unusable(f"compute should return (requests, logits), but returned {in_words(found)}")
    requests, logits = found
    names = [request.id for request in requests]
    if logits is None:
        return [names, None]
    if not torch.is_tensor(logits):
        raise Unusable(f"the logits of compute are {in_words(logits)}")
    return [names, [list(logits.shape), logits.argmax(-1).tolist()]]


@told
def compute_on_meta(module) -> list:
    """The devices of tokens, positions and rows that a model on torch's meta device is given."""
    given: list = []

    def forward(tokens, positions, cache=None, rows=None, every_position=False):
        given.extend(map(str, (tokens.device, positions.device, rows.device)))
        return torch.zeros(len(tokens), 5)

    model = SimpleNamespace(device=torch.device("meta"), forward=forward)
    stand = {"name": "a", "state": "prefill", "row": 3, "prompt": [1, 2], "output": []}
    module.compute(model, None, [(standing(module, stand | {"computed": 0}), 2)])
    return given


@told
def compute_llama(module, model: str, prompts: list, forwards: list) -> list:
    """The logits that compute gives for prompts of a real tiny model, in chunks [[index, count]].

    [[index of the prompt, its logits], ...] in the order in which they were complete.
    """
    llama = llama_of(forward_pass, model)
    cache = KVCache(llama.config, len(prompts), llama.config.max_position_embeddings)
    made = []
    for row, prompt in enumerate(prompts):
        stand = {"name": row, "state": "prefill", "row": row, "output": [], "computed": 0}
        made.append(standing(module, stand | {"prompt": prompt}))
        cache.reserve(row, len(prompt))
    found = []
    for chunks in forwards:
        pairs = [(made[index], count) for index, count in chunks]
        requests, logits = module.compute(llama, cache, pairs)
        found += [[request.id, logits[n].clone()] for n, request in enumerate(requests)]
    return found


# --- 6.7 ---


@told
def books(module, running: list, waiting: list, changes: dict) -> list:
    """The sentences of violations about requests, rows and counts of a cache.

    Args:
        running: how requests stand, kept under "key" (their row where it is not given).
        waiting: how others stand.
        changes: of what would be sound: "rows", "free_rows", "used", "free", "total".
    """
    made = {stand["name"]: standing(module, stand) for stand in [*running, *waiting]}
    kept = {stand.get("key", stand["row"]): made[stand["name"]] for stand in running}
    rows = changes.get("rows", 4)
    used = changes.get("used", sum(request.size for request in kept.values()))
    total = changes.get("total", rows * 100)
    cache = SimpleNamespace(
        used_tokens=used, free_tokens=changes.get("free", total - used), total_tokens=total
    )
    free = [row for row in range(rows) if row not in kept]
    room = SimpleNamespace(cache=cache, rows=rows, free_rows=changes.get("free_rows", free))
    before = {row: _stand(request) for row, request in kept.items()}
    found = module.violations(room, kept, (made[stand["name"]] for stand in waiting))
    if before != {row: _stand(request) for row, request in kept.items()}:
        raise Unusable("violations changed the requests that run: it should only look")
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise Unusable(f"violations should return a list of sentences, not {in_words(found)}")
    return found
