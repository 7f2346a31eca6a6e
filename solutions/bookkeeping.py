"""Chapter 06: the books of the batcher, and whether they balance."""

from collections import Counter
from collections.abc import Iterable, Mapping

from solutions.admission import Room
from solutions.request import Request, State


def violations(room: Room, running: Mapping[int, Request], waiting: Iterable[Request]) -> list[str]:
    """Everything that is wrong between the requests, their rows and the memory.

    A leak does no harm at first. Hours later nobody is admitted any more, and nothing says why.
    So whoever is idle looks whether all has come back.

    Args:
        room: the rows and tokens, and who may hold them.
        running: the requests that run, by the row under which the batcher keeps them.
        waiting: the requests that wait.

    Returns:
        one sentence for each violation below, and for each row or request; none when all is well:
        - the cache's used_tokens + free_tokens is not total_tokens: names all three;
        - the used_tokens are not the sizes of the running ones together: names both numbers;
        - a row from 0 to room.rows - 1 is in free_rows and in running, or in neither, or in
          free_rows more than once: names the row;
        - a request in running has another row than the one it is kept under, or none: names
          the request's id and the row it is kept under;
        - a request in running is not in state PREFILL or DECODE, or one in waiting is not in
          state WAITING or holds a row: names the request's id;
        - a request is there more than once, be it in running or waiting: names its id.
    """
    # exercise 6.7
    waiting = list(waiting)
    return [
        *_token_violations(room, running),
        *_row_violations(room, running),
        *_state_violations(running, waiting),
    ]


def _token_violations(room: Room, running: Mapping[int, Request]) -> list[str]:
    used, free, total = (
        room.cache.used_tokens,
        room.cache.free_tokens,
        room.cache.total_tokens,
    )
    needed = sum(request.size for request in running.values())
    found = []
    if used + free != total:
        found.append(f"{used} used and {free} free tokens are not {total} in all")
    if used != needed:
        found.append(f"{used} tokens are reserved, but the running requests need {needed}")
    return found


def _row_violations(room: Room, running: Mapping[int, Request]) -> list[str]:
    holders = Counter(room.free_rows) + Counter(running.keys())
    found = []
    for row in range(room.rows):
        if holders[row] != 1:
            state = "both free and held, or free twice" if holders[row] else "neither free nor held"
            found.append(f"row {row} is {state}")
    for row, request in running.items():
        if request.row != row:
            found.append(f"request {request.id} is kept under row {row}, but has row {request.row}")
    return found


def _state_violations(running: Mapping[int, Request], waiting: list[Request]) -> list[str]:
    found = []
    for request in running.values():
        if request.state not in (State.PREFILL, State.DECODE):
            found.append(f"request {request.id} runs, but its state is {request.state}")
    for request in waiting:
        if request.state is not State.WAITING or request.row is not None:
            found.append(
                f"request {request.id} waits, but its state is {request.state} "
                f"and its row {request.row}"
            )
    for request, times in Counter([*running.values(), *waiting]).items():
        if times > 1:
            found.append(f"request {request.id} is there {times} times")
    return found
