"""6.7 violations."""

from tests.parts import part


def found(m, change) -> None:
    """change(sentences, room, running, waiting) takes the place of what violations finds."""
    right = m.violations

    def violations(room, running, waiting):
        waiting = list(waiting)
        return change(right(room, running, waiting), room, running, waiting)

    m.violations = violations


def without(m, *words) -> None:
    """Sentences with one of these words are left out."""
    found(m, lambda told, *rest: [t for t in told if not any(word in t for word in words)])


@part("6.7")
def sums_unseen(m):
    """Used and free are not compared with the total."""
    without(m, "in all")


@part("6.7")
def leaks_unseen(m):
    """Used tokens are not compared with the requests."""
    without(m, "are reserved")


@part("6.7")
def too_few_reserved_is_well(m):
    """Fewer tokens than the requests need are no fault."""

    def change(told, room, running, waiting):
        needed = sum(r.size for r in running.values())
        few = room.cache.used_tokens < needed
        return [t for t in told if not (few and "are reserved" in t)]

    found(m, change)


@part("6.7")
def lost_rows_unseen(m):
    """A row that is nowhere is no fault."""
    without(m, "neither")


@part("6.7")
def double_rows_unseen(m):
    """A row that is free and held is no fault."""
    without(m, "both")


@part("6.7")
def free_twice_unseen(m):
    """A row that is free twice is no fault."""

    def change(told, room, running, waiting):
        return [t for t in told if "both" not in t or any(f"row {r} " in t for r in running)]

    found(m, change)


@part("6.7")
def last_row_unseen(m):
    """The last row is not looked at."""

    def change(told, room, running, waiting):
        return [t for t in told if not t.startswith(f"row {room.rows - 1} ")]

    found(m, change)


@part("6.7")
def row_0_unseen(m):
    """Row 0 is not looked at."""
    without(m, "row 0 is")


@part("6.7")
def other_rows_unseen(m):
    """A request may have another row than it is kept under."""
    without(m, "kept under")


@part("6.7")
def no_row_is_well(m):
    """A running request may have no row."""
    without(m, "has row None")


@part("6.7")
def finished_may_run(m):
    """A request that is over may run."""
    without(m, "runs, but its state is finished")


@part("6.7")
def waiting_may_run(m):
    """A request that waits may run."""
    without(m, "runs, but its state is waiting")


@part("6.7")
def who_waits_unseen(m):
    """Those who wait are not looked at."""
    without(m, " waits, but")


@part("6.7")
def who_waits_may_have_a_row(m):
    """A request that waits may hold a row."""

    def change(told, room, running, waiting):
        fine = [r for r in waiting if r.state == "waiting"]
        return [t for t in told if not any(f"request {r.id} waits" in t for r in fine)]

    found(m, change)


@part("6.7")
def row_0_is_none(m):
    """Row 0 of a request that waits counts as none."""
    without(m, "and its row 0")


@part("6.7")
def doubles_unseen(m):
    """A request may be there twice."""
    without(m, "times")


@part("6.7")
def doubles_of_the_waiting_only(m):
    """A request may run twice."""

    def change(told, room, running, waiting):
        double = {r.id for r in waiting}
        return [t for t in told if "times" not in t or any(f"{i} is there" in t for i in double)]

    found(m, change)


@part("6.7")
def a_sentence_each_time(m):
    """A request that is there three times is told twice."""

    def change(told, room, running, waiting):
        everybody = [*running.values(), *waiting]
        return told + [
            f"request {r.id} again" for r in dict.fromkeys(everybody) if everybody.count(r) > 2
        ]

    found(m, change)


@part("6.7")
def free_twice_and_held_is_two_things(m):
    """A row that is held and twice free makes two sentences."""
    right = m.violations

    def violations(room, running, waiting):
        free = list(room.free_rows)
        more = [row for row in running if free.count(row) > 1]
        return right(room, running, waiting) + [f"row {row} is free twice" for row in more]

    m.violations = violations


@part("6.7")
def running_and_waiting_apart(m):
    """Who runs and waits as well is not there twice."""
    right = m._state_violations

    def states(running, waiting):
        found = right(running, [])
        return found + right({}, waiting)

    m._state_violations = states


@part("6.7")
def same_id_is_the_same(m):
    """Requests are counted by their ids."""
    right = m._state_violations

    def states(running, waiting):
        found = right(running, waiting)
        ids = [request.id for request in [*running.values(), *waiting]]
        twice = {name for name in ids if ids.count(name) > 1}
        return found + [f"request {name} is there twice" for name in twice if not found]

    m._state_violations = states


@part("6.7")
def sizes_of_the_wishes(m):
    """A limit that was clamped is not looked at."""
    right = m._token_violations

    def tokens(room, running):
        limits = {request: request.limit for request in running.values()}
        for request in limits:
            request.limit = request.params.max_tokens
        found = right(room, running)
        for request, limit in limits.items():
            request.limit = limit
        return found

    m._token_violations = tokens


@part("6.7")
def books_are_mended(m):
    """A request gets the row that it is kept under."""
    right = m.violations

    def violations(room, running, waiting):
        found = right(room, running, waiting)
        for row, request in running.items():
            request.row = row
        return found

    m.violations = violations


@part("6.7")
def one_long_sentence(m):
    """All is said in one sentence."""
    found(m, lambda told, *rest: ["; ".join(told)] if told else [])


@part("6.7")
def nothing_is_none(m):
    """None when all is well."""
    found(m, lambda told, *rest: told or None)


@part("6.7")
def names_left_out(m):
    """Numbers are not said."""
    found(m, lambda told, *rest: ["".join(c for c in t if not c.isdigit()) for t in told])


@part("6.7")
def all_is_always_well(m):
    """Nothing is ever found."""
    found(m, lambda told, *rest: [])


@part("6.7")
def somebody_must_wait(m):
    """Nobody waiting counts as a fault."""
    found(m, lambda told, room, running, waiting: told if waiting else [*told, "nobody waits"])
