"""A whole batcher, simulated with counts: nothing is computed, no memory is held.

It knows beforehand what each request will be told (tests/oracles/batcher.py), and only works out
when: who waits, who holds which row, and how many of whose tokens each step computes.
"""

from tests.oracles.batcher import Line, plan, told


class Simulation:
    """The same calls as a batcher's, with requests by name.

    Args:
        rows, length: of the cache.
        running, waiting, places, share, patience: the limits.
        context: of the model.
        ends: the end ids.
    """

    def __init__(
        self,
        rows,
        length,
        running=None,
        waiting=256,
        places=512,
        share=1.0,
        patience=5.0,
        context=256,
        ends=(),
    ):
        self.rows = running or rows
        self.budget = int(share * rows * length)
        self.context = min(length, context, self.budget)
        self.places, self.ends = places, ends
        self.line = Line(waiting, patience)
        self.wishes, self.held, self.done, self.cancelled = {}, {}, {}, []

    def submit(self, name: str, wish: dict, now: float) -> bool:
        """wish: "prompt", "max_tokens", "priority", "deadline", "admit_by". False when full."""
        limit = min(wish["max_tokens"], self.context - len(wish["prompt"]))
        answer, reason = told(wish["prompt"], limit, self.ends)
        wish = wish | {"size": len(wish["prompt"]) + limit, "answer": answer, "reason": reason}
        self.wishes[name] = wish
        return self.line.add(name, wish, now)

    def cancel(self, name: str) -> None:
        """The next step ends it."""
        self.cancelled.append(name)

    def step(self, now: float) -> dict:
        """The record of one step: decode, prefill, counts; tokens and ends by name."""
        self.tokens, self.over = {}, {}
        for name in self.cancelled:
            if self.line.remove(name) or name in self.held:
                self._end(name, "cancelled")
        self.cancelled = []
        for name in self.line.expired(now):
            self._end(name, "timeout")
        for name in list(self.held):
            deadline = self.wishes[name]["deadline"]
            if deadline is not None and deadline <= now:
                self._end(name, "timeout")
        self._admit(now)
        decodes, prefills, places = plan(self._standing(), self.places)
        decode = [self.held[name]["row"] for name, _ in decodes]
        prefill = {self.held[name]["row"]: count for name, count in prefills}
        for name, count in prefills:
            self.held[name]["left"] -= count
        for name in [*(n for n, _ in decodes), *(n for n, _ in prefills)]:
            if not self.held[name]["left"]:
                self._tell(name)
        counts = [places, len(self.held), len(self.line.line)]
        found = {"decode": decode, "prefill": prefill, "counts": counts}
        return found | {"tokens": self.tokens, "over": self.over}

    def _admit(self, now: float) -> None:
        while (name := self.line.first(now)) is not None:
            used = sum(self.wishes[other]["size"] for other in self.held)
            taken = {held["row"] for held in self.held.values()}
            free = [row for row in range(self.rows) if row not in taken]
            if not free or used + self.wishes[name]["size"] > self.budget:
                return
            self.line.remove(name)
            self.held[name] = {"row": free[0], "left": len(self.wishes[name]["prompt"]), "told": 0}

    def _standing(self) -> list[dict]:
        return [
            {
                "name": name,
                "row": held["row"],
                "state": "prefill" if held["left"] else "decode",
                "remaining": held["left"],
            }
            for name, held in self.held.items()
        ]

    def _tell(self, name: str) -> None:
        """One more token of its answer, or its end id."""
        held, wish = self.held[name], self.wishes[name]
        if held["told"] < len(wish["answer"]):
            self.tokens[name] = wish["answer"][held["told"]]
            held["told"] += 1
            if held["told"] < len(wish["answer"]) or wish["reason"] == "stop":
                return
        self._end(name, wish["reason"])

    def _end(self, name: str, reason: str) -> None:
        told_so_far = self.held.pop(name, {"told": 0})["told"]
        self.over[name] = reason
        self.done[name] = [self.wishes[name]["answer"][:told_so_far], reason]

    @property
    def idle(self) -> bool:
        """Nobody runs or waits, and nothing is to be cancelled."""
        return not (self.held or self.line.line or self.cancelled)
