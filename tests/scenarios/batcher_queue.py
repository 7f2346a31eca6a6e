"""Chapter 06 beside the code under test: the waiting queue, and admission.

Every scenario takes the module under test first and returns plain data. A wish is
{"name", "length" of the prompt, "max_tokens", "priority", "deadline", "admit_by", and the "context"
that it was fitted to, if it was}.
"""

import gc
import weakref

from solutions.kv_cache import CacheFull
from solutions.sampling_params import SamplingParams
from tests.scenarios.batcher_models import ERRORS, new_cache
from tests.scenarios.helpers import Unusable, attempt, in_words, told

# --- 6.3 ---


def wished(module, wish: dict):
    """The Request of a wish."""
    named = {key: wish[key] for key in ("priority", "deadline", "admit_by") if key in wish}
    params = SamplingParams(max_tokens=wish["max_tokens"])
    made = module.Request([1] * wish["length"], params, id=wish["name"], **named)
    if "context" in wish:
        made.fit(wish["context"], 99)
    return made


def name_of(request) -> str | None:
    """The name of a request that came back."""
    if request is not None and not hasattr(request, "id"):
        raise Unusable(f"a Request or None is needed, not {in_words(request)}")
    return None if request is None else request.id


@told
def queue_session(module, queues: list, wishes: dict, steps: list) -> list:
    """What queues answer to steps; requests travel by name.

    Args:
        queues: [bound, patience] each.
        wishes: by name.
        steps: [queue, name of a call, argument, ...]: "add" name now, "first" now, "remove" name,
            "expired" now, "len", "names"; "fails" names step; "arrival" of a name; "finish" of one.
    """
    made = {name: wished(module, wish) for name, wish in wishes.items()}
    lines = [module.WaitingQueue(*given) for given in queues]
    return [queue_call(lines[at], made, *step) for at, *step in steps]


def queue_call(queue, made: dict, name: str, *args):
    """One call of a queue, and what it gave; requests travel by name, see queue_session."""
    if name == "fails":
        return attempt(lambda: queue_call(queue, made, *args[1]), args[0])
    if name == "len":
        return len(queue)
    if name == "names":
        return [name_of(request) for request in queue]
    if name == "arrival":
        return made[args[0]].arrival
    if name == "finish":
        return made[args[0]].finish("cancelled")
    if name == "expired":
        return [name_of(request) for request in queue.expired(*args)]
    if name == "first":
        return name_of(queue.first(*args))
    found = getattr(queue, name)(made[args[0]], *args[1:])
    return None if name == "add" else found


@told
def queue_while_iterated(module, wishes: list) -> list:
    """The names that an iteration gives when, after its first, all leave and another joins."""
    queue = module.WaitingQueue(10)
    made = [wished(module, wish) for wish in wishes]
    for request in made[:-1]:
        queue.add(request, 0.0)
    walk = iter(queue)
    names = [name_of(next(walk))]
    for request in made[:-1]:
        queue.remove(request)
    queue.add(made[-1], 1.0)
    return names + [name_of(request) for request in walk]


@told
def queue_of_namesakes(module, wishes: list) -> list:
    """Two requests, equal but for their sizes, the second of them shorter.

    [how many wait, whether the second is first and can be removed, whether the first is then first,
    and how many wait].
    """
    queue = module.WaitingQueue(5)
    long, short = (wished(module, wish) for wish in wishes)
    queue.add(long, 0.0)
    queue.add(short, 0.0)
    found = [len(queue), queue.first(1.0) is short, queue.remove(short)]
    return [*found, queue.first(1.0) is long, queue.remove(short), len(queue)]


@told
def queue_memory(module, stay: int, groups: list) -> list:
    """[how many wait, how many live] when so many stay, and groups have come and left since.

    Args:
        groups: [how many, priority, deadline, "remove" or "expired"] each. Those that stay have
            priority 0 and deadline 60: what comes after them in a heap is never popped.
    """
    queue, alive = module.WaitingQueue(500), []

    def come(count, priority, deadline):
        for _ in range(count):
            wish = {"name": len(alive), "length": 4, "max_tokens": 4}
            request = wished(module, wish | {"priority": priority, "deadline": deadline})
            alive.append(weakref.ref(request))
            queue.add(request, 0.0)

    come(stay, 0, 60.0)
    for count, priority, deadline, way in groups:
        come(count, priority, deadline)
        if way == "expired":
            queue.expired(55.0)
        else:
            for mark in reversed(alive[-count:]):
                queue.remove(mark())
        queue.first(1.0)
    gc.collect()
    return [len(queue), sum(one() is not None for one in alive)]


class Counted(float):
    """A number that counts how often it is compared, or something is taken from it or added."""

    uses = 0

    def _counting(name):
        def method(self, other):
            Counted.uses += 1
            return getattr(float, name)(self, other)

        return method

    __lt__, __gt__, __le__ = _counting("__lt__"), _counting("__gt__"), _counting("__le__")
    __ge__, __eq__, __ne__ = _counting("__ge__"), _counting("__eq__"), _counting("__ne__")
    __sub__, __rsub__ = _counting("__sub__"), _counting("__rsub__")
    __add__, __radd__ = _counting("__add__"), _counting("__radd__")
    __hash__ = float.__hash__


@told
def queue_comparisons(module, count: int, rounds: int, limit: int) -> list:
    """With count requests waiting, what calls did within the limit of looks at priorities or times.

    [[name of a call, how many of its rounds were within it]], who was first each time, and how many
    looks it took to remove every tenth from wherever it stood.
    """
    queue = module.WaitingQueue(count + rounds)
    made = []
    for number in range(count + rounds):
        wish = {"name": number, "length": 1 + number % 7, "max_tokens": 4}
        made.append(wished(module, wish | {"priority": Counted(number * 7919 % 10_007)}))
    for request in made[:count]:
        queue.add(request, Counted(0.0))
    now, few, firsts = Counted(1.0), {"add": 0, "first": 0, "remove": 0}, []
    for request in made[count:]:
        few["add"] += _uses(lambda r=request: queue.add(r, now)) <= limit
        few["first"] += _uses(lambda: firsts.append(queue.first(now))) <= limit
        few["remove"] += _uses(lambda: queue.remove(firsts[-1])) <= limit
    all_over = _uses(lambda: [queue.remove(request) for request in made[:count:10]])
    pairs = [list(pair) for pair in few.items()]
    return [pairs, [name_of(request) for request in firsts], all_over]


def _uses(call) -> int:
    before = Counted.uses
    call()
    return Counted.uses - before


# --- 6.4 ---


class Pages:
    """A KV cache of another kind: what every kind has, room in pages, and full when told."""

    def __init__(self, rows: int, max_length: int, page: int = 1):
        self.rows, self.max_length, self.page, self.full = rows, max_length, page, False
        self.total_tokens, self.rooms = rows * max_length, {}

    @property
    def used_tokens(self) -> int:
        """Whole pages."""
        return sum(-(-length // self.page) * self.page for length in self.rooms.values())

    @property
    def free_tokens(self) -> int:
        """The rest."""
        return self.total_tokens - self.used_tokens

    def reserve(self, row: int, length: int) -> None:
        """Room in a row."""
        if self.full:
            raise (CacheFull if self.full is True else ERRORS[self.full])("no page is free")
        if not 0 <= row < self.rows:
            raise IndexError(f"no row {row}")
        self.rooms[row] = max(length, self.rooms.get(row, 0))

    def free(self, row: int) -> None:
        """All of a row."""
        self.rooms.pop(row, None)


@told
def room_session(module, setting: dict, wishes: dict, steps: list) -> list:
    """What a Room (and admit) answers to steps, and how it stands after each.

    Args:
        setting: "cache" [rows, max_length], "page" (None: chapter 04's cache), "rows", "budget".
        wishes: by name.
        steps: ["take", name], ["give_back", name], ["full", bool, or the name of another error]
            of the cache; ["add", name, now] to the queue; ["admit", now]; ["fails", step].
    """
    rows, length = setting["cache"]
    page = setting["page"]
    cache = new_cache(rows, length) if page is None else Pages(rows, length, page)
    room = module.Room(cache, setting["rows"], setting["budget"])
    queue = module.WaitingQueue(50, setting.get("patience", 5.0))
    made = {name: wished(module, wish) for name, wish in wishes.items()}
    answers = []
    for step in steps:
        found = _room_step(module, room, queue, made, *step)
        held = {name: request.row for name, request in made.items() if request.row is not None}
        stands = [list(room.free_rows), int(cache.used_tokens), held]
        waiting = list(queue)
        if any(request.admitted is not None for request in waiting):
            raise Unusable("a request that still waits says that it was admitted")
        answers.append([found, *stands, [name_of(request) for request in waiting]])
    return answers


def _room_step(module, room, queue, made: dict, name: str, *args):
    if name == "fails":
        return attempt(lambda: _room_step(module, room, queue, made, *args[0]), [])
    if name == "full":
        room.cache.full = args[0]
        return None
    if name == "add":
        queue.add(made[args[0]], args[1])
        return None
    if name == "admit":
        found = module.admit(queue, room, *args)
        return [[r.id, str(r.state), r.row, r.admitted] for r in found]
    found = getattr(room, name)(made[args[0]])
    return None if name == "give_back" else found
