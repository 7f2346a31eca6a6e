"""Wrong versions of 6.7 violations."""

from course.misconceptions import misconception
from solutions.bookkeeping import _row_violations, _state_violations, _token_violations


@misconception("6.7", "violations")
def free_and_used_only(room, running, waiting):
    """You only compare used plus free with the total. A cache that keeps room for a request long
    gone passes that: the used tokens must also be those of the requests that run.
    """
    used, free = room.cache.used_tokens, room.cache.free_tokens
    total = room.cache.total_tokens
    found = [] if used + free == total else [f"{used} and {free} are not {total}"]
    return [
        *found,
        *_row_violations(room, running),
        *_state_violations(running, list(waiting)),
    ]


@misconception("6.7", "violations")
def only_the_first(room, running, waiting):
    """You stop at the first thing that is wrong. A leak shows in several places, and all of them
    together say where it comes from: collect every sentence.
    """
    waiting = list(waiting)
    found = _token_violations(room, running) or _row_violations(room, running)
    return (found or _state_violations(running, waiting))[:1]


@misconception("6.7", "violations")
def rows_by_number(room, running, waiting):
    """You compare how many rows are free and how many are held with how many there are. One row
    that is lost and another that is twice there cancel out: look at each row.
    """
    found = _token_violations(room, running)
    if len(room.free_rows) + len(running) != room.rows:
        found.append(f"{len(room.free_rows)} free and {len(running)} held of {room.rows} rows")
    for row, request in running.items():
        if request.row != row:
            found.append(f"request {request.id} is kept under row {row}")
    return [*found, *_state_violations(running, list(waiting))]
