"""6.3 WaitingQueue."""

from course.cases import case, expect_equal
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.oracles.batcher import Line


def wish(name: str, size: int = 6, priority: int = 0, deadline=None, admit_by=None) -> dict:
    """A request that may grow to size tokens."""
    half = size // 2
    named = {"name": name, "length": half, "max_tokens": size - half, "priority": priority}
    return named | {"deadline": deadline, "admit_by": admit_by}


def size_of(wanted: dict) -> int:
    """Tokens that it may grow to."""
    return min(wanted["length"] + wanted["max_tokens"], wanted.get("context", 10**9))


class Script:
    """Steps for queues and what the oracle answers to each."""

    def __init__(self, *queues, wishes=()):
        self.queues = [list(given) for given in queues or [(20, 5.0)]]
        self.lines = [Line(*given) for given in self.queues]
        self.wishes = {one["name"]: one for one in wishes}
        self.steps, self.expected = [], []

    def add(self, name: str, now: float, at: int = 0) -> bool:
        """Whether it was let in."""
        wanted = self.wishes[name]
        went = self.lines[at].add(name, wanted | {"size": size_of(wanted)}, now)
        step = ["add", name, now]
        if went:
            self._step(at, step, None)
            self._step(at, ["arrival", name], now)
        else:
            self._step(at, ["fails", [self.queues[at][0]], step], "QueueFull")
            self._step(at, ["arrival", name], None)
        return went

    def ask(self, name: str, *args, at: int = 0):
        """A call that the oracle knows under the same name."""
        answer = getattr(self.lines[at], name)(*args)
        self._step(at, [name, *args], answer)
        return answer

    def look(self, at: int = 0) -> None:
        """How many wait, and who."""
        names = self.lines[at].names()
        self._step(at, ["len"], len(names))
        self._step(at, ["names"], names)

    def _step(self, at: int, step: list, answer) -> None:
        self.steps.append([at, *step])
        self.expected.append(answer)

    def run(self, learner) -> None:
        """Drive the learner's queues, and compare."""
        found = drive(learner, "queue_session", self.queues, self.wishes, self.steps)
        said: list = []
        for step, got, want in zip(self.steps, found, self.expected, strict=True):
            shown = f"{step[1]}({', '.join(map(repr, step[2:]))})"
            before = f" after {', '.join(said[-6:])}" if said else ""
            if want == "QueueFull":
                expect_failure(got, "QueueFull", f"add of {step[3][1]!r} at {step[3][2]}{before}")
            else:
                expect_equal(got, want, f"{shown} of queue {step[0]}{before}")
            if step[1] in ("add", "remove", "expired"):
                said.append(shown)


def served(script: Script, now: float) -> None:
    """Everybody who waits, one after the other."""
    while (name := script.ask("first", now)) is not None:
        script.ask("remove", name)
    script.look()


@case("6.3")
def queue_short_first(learner, rng):
    """Of equal priority the shortest goes first: prompt and answer together; of equal size whoever
    came first.
    """
    sizes = rng.sample(range(4, 40), 6)
    wishes = [wish(f"r{n}", size) for n, size in enumerate([*sizes, sizes[0], sizes[2]])]
    wishes.append(wish("many to come", 8) | {"length": 1, "max_tokens": 45})
    wishes.append(wish("many read", 8) | {"length": 46, "max_tokens": 1})
    wishes.append(wish("many wished for", 8) | {"max_tokens": 5000, "context": 12})
    script = Script(wishes=wishes)
    for n, one in enumerate(wishes):
        script.add(one["name"], n / 10)
    served(script, 1.0)
    script.run(learner)


@case("6.3")
def queue_by_priority(learner, rng):
    """The lower priority number goes first, whatever the sizes; numbers may be negative."""
    wishes = [
        wish("long and important", 90, -1),
        wish("short and not", 4, 2),
        wish("normal", 30),
        wish("shorter", 20),
        wish("most important", 50, -7),
        wish("not at all", 6, 100),
    ]
    rng.shuffle(wishes)
    script = Script(wishes=wishes)
    for n, one in enumerate(wishes):
        script.add(one["name"], n / 10)
    served(script, 1.0)
    script.run(learner)


@case("6.3")
def queue_first_stays(learner, rng):
    """first says who is next and takes nobody out; an empty queue says None."""
    script = Script(wishes=[wish("a", 9), wish("b", 5)])
    script.ask("first", 0.0)
    script.add("a", 0.0)
    script.ask("first", 0.5)
    script.look()
    script.ask("first", 0.5)
    script.add("b", 1.0)
    script.ask("first", 1.0)
    script.ask("first", 1.0)
    script.look()
    script.run(learner)


@case("6.3")
def queue_promotes(learner, rng):
    """Who has waited for more than `patience` goes before all others, whatever their priority; not
    yet when it is exactly that long.
    """
    for patience in (5.0, 0.25, 60.0):
        script = Script((20, patience), wishes=[wish("old", 40, 3), wish("new", 4, -3)])
        script.add("old", 10.0)
        script.add("new", 10.0 + patience)
        script.ask("first", 10.0 + patience)
        script.ask("first", 10.125 + patience)
        script.ask("remove", "old")
        script.ask("first", 10.25 + patience)
        script.run(learner)


@case("6.3")
def queue_promoted_by_arrival(learner, rng):
    """Several who have waited too long go in the order of their arrival, then come the others by
    their turn; who has left is not waited for.
    """
    wishes = [wish(f"r{n}", rng.randrange(4, 40), rng.randrange(-2, 3)) for n in range(9)]
    script = Script(wishes=wishes)
    for n, one in enumerate(wishes):
        script.add(one["name"], float(n))
    for now in (8.0, 9.5, 10.5, 10.5, 12.5, 12.5, 12.5):
        script.ask("remove", script.ask("first", now))
    script.look()
    script.run(learner)


@case("6.3")
def queue_is_bounded(learner, rng):
    """One more than the bound is QueueFull, which names it: the request has no arrival then, and is
    let in once there is a place.
    """
    bound = rng.randrange(11, 15)
    script = Script((bound, 5.0), wishes=[wish(f"r{n}") for n in range(bound + 2)])
    for n in range(bound + 1):
        script.add(f"r{n}", n / 10)
    script.look()
    script.ask("remove", "r3")
    script.add(f"r{bound}", 2.0)
    script.add(f"r{bound + 1}", 2.0)
    script.look()
    served(script, 2.5)
    script.run(learner)


@case("6.3")
def queue_removes(learner, rng):
    """remove takes out whoever it is, wherever it stands, and says whether it was there."""
    wishes = [wish(f"r{n}", rng.randrange(4, 30)) for n in range(8)]
    script = Script(wishes=wishes)
    script.ask("remove", "r0")
    for n in range(7):
        script.add(f"r{n}", n / 10)
    for n in rng.sample(range(8), 5):
        script.ask("remove", f"r{n}")
        script.ask("first", 1.0)
        script.ask("remove", f"r{n}")
        script.look()
    served(script, 9.0)
    script.run(learner)


@case("6.3")
def queue_expires(learner, rng):
    """expired takes out those whose deadline or admit_by has come, that moment included, the
    earliest first, of equals whoever came first.
    """
    wishes = [
        wish("late", deadline=9.0),
        wish("admit", deadline=50.0, admit_by=4.0),
        wish("never"),
        wish("early", deadline=2.0, admit_by=8.0),
        wish("equal", admit_by=4.0, size=3),
        wish("at once", admit_by=0.5),
    ]
    script = Script(wishes=wishes)
    for n, one in enumerate(wishes):
        script.add(one["name"], n / 10)
    for now in (0.25, 1.0, 3.9, 4.0, 4.0, 8.5, 100.0):
        script.ask("expired", now)
        script.look()
        script.ask("first", 5.0)
    script.run(learner)


@case("6.3")
def queue_expires_who_is_there(learner, rng):
    """Who was removed does not expire afterwards, and who expired is not removed."""
    wishes = [wish("a", deadline=1.0), wish("b", deadline=2.0), wish("c", deadline=3.0)]
    script = Script(wishes=wishes)
    for one in wishes:
        script.add(one["name"], 0.0)
    script.ask("remove", "b")
    script.ask("expired", 2.5)
    script.ask("remove", "a")
    script.ask("first", 2.5)
    script.ask("expired", 9.0)
    script.look()
    script.run(learner)


@case("6.3")
def queue_takes_each_once(learner, rng):
    """A request that was added before, here or elsewhere, or is over, is a ValueError; nothing
    changes then.
    """
    wishes = {one["name"]: one for one in (wish("a"), wish("b"), wish("c"))}
    steps = [
        [0, "add", "a", 1.0],
        [0, "fails", [], ["add", "a", 2.0]],
        [1, "fails", [], ["add", "a", 2.0]],
        [0, "add", "b", 2.0],
        [0, "remove", "b"],
        [0, "fails", [], ["add", "b", 3.0]],
        [0, "finish", "c"],
        [0, "fails", [], ["add", "c", 3.0]],
        [0, "names"],
        [1, "names"],
        [0, "arrival", "a"],
        [0, "arrival", "c"],
    ]
    found = drive(learner, "queue_session", [[9, 5.0], [9, 5.0]], wishes, steps)
    for step, answer in zip(steps, found, strict=True):
        if step[1] == "fails":
            expect_failure(answer, "ValueError", f"a second add of {step[3][1]!r}")
    expect_equal(found[-4:], [["a"], [], 1.0, None], "[names, names, arrival of a, of c]")


@case("6.3")
def queue_of_namesakes(learner, rng):
    """Two requests may have the same id, and are two."""
    found = drive(learner, "queue_of_namesakes", [wish("twin", 30), wish("twin", 20)])
    what = "[how many, second first, second removed, first first, second removed again, how many]"
    expect_equal(found, [2, True, True, True, False, 1], what)


@case("6.3")
def queue_of_its_own(learner, rng):
    """Two queues share nothing."""
    wishes = [wish(f"r{n}", deadline=float(n)) for n in range(6)]
    script = Script((3, 5.0), (9, 1.0), wishes=wishes)
    for n in range(6):
        script.add(f"r{n}", 0.0, at=n % 2)
    for at in (0, 1):
        script.ask("first", 2.0, at=at)
        script.ask("remove", "r2", at=at)
        script.ask("expired", 3.0, at=at)
        script.look(at)
    script.run(learner)


@case("6.3")
def queue_walks_a_copy(learner, rng):
    """An iteration goes through those who wait, by arrival, and is not disturbed by changes."""
    wishes = [wish(name, size) for name, size in (("a", 9), ("b", 5), ("c", 7), ("d", 3))]
    found = drive(learner, "queue_while_iterated", wishes)
    expect_equal(found, ["a", "b", "c"], "the names")


@case("6.3")
def queue_at_length(learner, rng):
    """Hundreds of calls in any order: always the same as sorting the whole queue each time."""
    wishes = []
    for n in range(150):
        times = [rng.choice([None, rng.uniform(1, 40)]) for _ in range(2)]
        wishes.append(wish(f"r{n}", rng.randrange(2, 12), rng.randrange(-1, 2), *times))
    script, now = Script((40, 5.0), wishes=wishes), 0.0
    for one in wishes:
        now += rng.choice([0.0, 0.125, 0.5])
        script.add(one["name"], now)
        for _ in range(rng.randrange(3)):
            name = script.ask("first", now)
            if name is not None and rng.random() < 0.7:
                script.ask("remove", name)
        if rng.random() < 0.2:
            script.ask("expired", now)
            script.ask("remove", f"r{rng.randrange(150)}")
    script.look()
    script.run(learner)
