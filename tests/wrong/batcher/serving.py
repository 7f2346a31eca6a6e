"""6.8 Batcher: who is served when, and what they are told."""

import threading

import torch

from tests.parts import part


def method(m, name, change) -> None:
    """change(right, self, *args) takes the place of a method of Batcher."""
    right = getattr(m.Batcher, name)

    def changed(self, *args):
        return change(right, self, *args)

    setattr(m.Batcher, name, changed)


def recorded(m, change) -> None:
    """change(self, step) is what step returns."""
    method(m, "step", lambda right, self: change(self, right(self)))


def remade(m, step, **changes):
    """A Step with other fields."""
    fields = ("decode", "prefill", "places", "running", "waiting", "errors")
    return m.Step(**{name: changes.get(name, getattr(step, name)) for name in fields})


@part("6.8")
def context_of_the_model_only(m):
    """What a row of the cache and the budget have room for is not looked at."""

    def change(right, self, request):
        kept, self.context = self.context, self.model.config.max_position_embeddings
        try:
            right(self, request)
        finally:
            self.context = kept

    method(m, "submit", change)


@part("6.8")
def ids_not_checked(m):
    """An id that nobody knows is let in."""

    def change(right, self, request):
        request.fit(self.context, 10**9)
        self.waiting.add(request, self.clock())

    method(m, "submit", change)


@part("6.8")
def refused_and_told(m):
    """on_finish is called when submit refuses."""

    def change(right, self, request):
        try:
            right(self, request)
        except ValueError:
            if request.on_finish is not None:
                request.finish_reason = "error"
                request.on_finish(request)
            raise

    method(m, "submit", change)


@part("6.8")
def refused_in_silence(m):
    """submit of too many does nothing."""

    def change(right, self, request):
        try:
            right(self, request)
        except m.QueueFull:
            return

    method(m, "submit", change)


@part("6.8")
def arrival_of_the_next_step(m):
    """Arrivals are those of the next step."""

    def change(right, self, request):
        right(self, request)
        self.late = [*getattr(self, "late", []), request]

    def step(right, self):
        for request in getattr(self, "late", []):
            request.arrival = self.clock.now
        self.late = []
        return right(self)

    method(m, "submit", change)
    method(m, "step", step)


@part("6.8")
def prefills_first(m):
    """The prompts are computed before the decodes."""
    later = []

    def change(right, self, chunks):
        if chunks and chunks[0][0].state == "decode":
            later.append(chunks)
            return [], None
        found = right(self, chunks)
        if later:
            requests, logits = right(self, later.pop())
            if requests:
                both = [x for x in (logits, found[1]) if x is not None]
                return requests + found[0], torch.cat(both)
        return found

    method(m, "_compute", change)


@part("6.8")
def a_forward_for_each_prompt(m):
    """Every prompt has a forward of its own."""

    def change(right, self, chunks):
        if not chunks or chunks[0][0].state == "decode":
            return right(self, chunks)
        found = [right(self, [chunk]) for chunk in chunks]
        logits = [rows for _, rows in found if rows is not None]
        requests = [request for part, _ in found for request in part]
        return requests, torch.cat(logits) if logits else None

    method(m, "_compute", change)


@part("6.8")
def sampler_called_for_nobody(m):
    """The sampler is called in every step."""

    def change(right, self, parts):
        found = right(self, parts)
        if not found:
            self.sampler.sample(torch.zeros((0, 5)), [])
        return found

    method(m, "_sample", change)


@part("6.8")
def over_at_the_end_of_the_step(m):
    """Requests end when all tokens of the step have been told."""
    ends = []

    def emit(right, self, request, token, told):
        kept, self._end = self._end, lambda *args: ends.append(args)
        try:
            right(self, request, token, told)
        finally:
            self._end = kept

    def step(right, self):
        found = right(self)
        while ends:
            self._end(*ends.pop(0))
        return remade(m, found, running=len(self.running))

    method(m, "_emit", emit)
    method(m, "step", step)


@part("6.8")
def told_before_the_room_is_back(m):
    """on_finish is called while the request still holds its room."""

    def change(right, self, request, reason, error=None):
        problem = m.end(request, reason, error)
        self.running.pop(request.row, None)
        self.room.give_back(request)
        if problem is not None:
            self._errors.append(problem)

    method(m, "_end", change)


@part("6.8")
def probabilities_lost(m):
    """Log-probabilities are not added."""
    method(m, "_emit", lambda right, self, request, token, told: right(self, request, token, None))


@part("6.8")
def probabilities_for_all(m):
    """Who does not ask for log-probabilities gets some."""

    def change(right, self, request, token, told):
        right(self, request, token, told)
        if told is None and request.output:
            request.logprobs.append(m.TokenLogProbs(token, 0.0, {}))

    method(m, "_emit", change)


@part("6.8")
def sampler_forgets(m):
    """The sampler's memory is made anew for every token."""

    def change(right, self, requests, logits):
        for request in requests:
            request.sampling = self.sampler.SamplingState(request.params, request.prompt)
        return right(self, requests, logits)

    method(m, "_chosen", change)


@part("6.8")
def one_generator_for_all(m):
    """All requests draw from the generator of the first."""

    def change(right, self, requests, logits):
        for request in requests:
            request.sampling.generator = self.__dict__.setdefault(
                "generator", request.sampling.generator
            )
        return right(self, requests, logits)

    method(m, "_chosen", change)


@part("6.8")
def always_greedy(m):
    """The most probable token is taken, whatever the params say."""

    def change(right, self, requests, logits):
        self.sampler.sample(logits, [request.sampling for request in requests])
        return [(r, t, None) for r, t in zip(requests, logits.argmax(-1).tolist(), strict=True)]

    method(m, "_chosen", change)


@part("6.8")
def tokens_are_tensors(m):
    """on_token and output get tensors."""

    def change(right, self, requests, logits):
        return [(r, torch.tensor(token), told) for r, token, told in right(self, requests, logits)]

    method(m, "_chosen", change)


@part("6.8")
def counts_of_the_beginning(m):
    """running and waiting are those at the beginning of the step."""

    def change(right, self):
        before = len(self.running), len(self.waiting)
        return remade(m, right(self), running=before[0], waiting=before[1])

    method(m, "step", change)


@part("6.8")
def places_without_padding(m):
    """places are the tokens computed."""

    def change(self, step):
        return remade(m, step, places=len(step.decode) + sum(step.prefill.values()))

    recorded(m, change)


@part("6.8")
def prompts_by_number(m):
    """prefill counts prompts, not tokens."""
    recorded(m, lambda self, step: remade(m, step, prefill=dict.fromkeys(step.prefill, 1)))


@part("6.8")
def clock_read_again(m):
    """A step reads the clock twice."""

    def change(self, step):
        self.clock()
        return step

    recorded(m, change)


@part("6.8")
def lock_during_the_forward(m):
    """submit and cancel wait for the end of a step."""
    right = m.Batcher.__init__

    def init(self, *args):
        right(self, *args)
        self.lock = threading.RLock()

    def held(right, self, *args):
        with self.lock:
            return right(self, *args)

    m.Batcher.__init__ = init
    for name in ("submit", "cancel", "step"):
        method(m, name, held)


@part("6.8")
def running_of_all_batchers(m):
    """All batchers share those who run."""
    shared: dict = {}
    right = m.Batcher.__init__

    def init(self, *args):
        right(self, *args)
        self.running = shared

    m.Batcher.__init__ = init


@part("6.8")
def leak_unseen(m):
    """Nobody looks at the books."""
    method(m, "_check_when_idle", lambda right, self: None)


@part("6.8")
def one_more_step_of_nobody(m):
    """A step with nobody calls the model."""

    def change(self, step):
        if not step.decode and not step.prefill:
            one = torch.zeros((1, 1), dtype=torch.long)
            self.model.forward(one, one)
        return step

    recorded(m, change)
