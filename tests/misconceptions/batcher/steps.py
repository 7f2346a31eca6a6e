"""Wrong versions of 6.8 Batcher."""

from course.misconceptions import misconception
from solutions.admission import admit
from solutions.batcher import Step
from solutions.chunking import compute, plan_step
from solutions.ending import emit, end
from solutions.request import State


@misconception("6.8", "Batcher.cancel")
def cancelled_on_the_spot(self, request):
    """You end the request inside cancel. That may be another thread, or a listener in the middle of
    a step: a row would be freed that a forward is just writing to. Leave it to the next step.
    """
    if self.running.get(request.row) is request or self.waiting.remove(request):
        self._end(request, "cancelled")


@misconception("6.8", "Batcher._retire")
def cancelled_meanwhile_lost(self, now):
    """You go through the cancelled ones and then empty the list. Who is cancelled by another thread
    in between is lost, and runs to the end: take them out one by one.
    """
    for request in list(self._cancelled):
        if self.running.get(request.row) is request or self.waiting.remove(request):
            self._end(request, "cancelled")
    self._cancelled.clear()
    late = [request for request in self.running.values() if request.expires <= now]
    for request in [*self.waiting.expired(now), *late]:
        self._end(request, "timeout")


@misconception("6.8", "Batcher._end")
def room_back_too_late(self, request, reason, error=None):
    """You tell on_finish first, and give the room back then. The listener hears that it is over
    while the room is still taken, and whatever goes wrong there would keep it: give it back first.
    """
    problem = end(request, reason, error)
    self.running.pop(request.row, None)
    self.room.give_back(request)
    if problem is not None:
        self._errors.append(problem)


@misconception("6.8", "Batcher._compute")
def fault_ends_everybody(self, chunks):
    """When one forward fails, you end all that run. Only those who were in that forward have lost
    anything; the others go on.
    """
    requests = list(self.running.values())
    found = self._try(requests, lambda: compute(self.model, self.cache, chunks))
    return ([], None) if found is None else found


@misconception("6.8", "Batcher._without_faulty")
def logits_trusted(self, requests, logits):
    """You sample from whatever the model gives. Of NaN no token can be chosen: the sampler raises
    or makes nonsense for all, instead of ending the one request that it concerns.
    """
    return requests, logits


@misconception("6.8", "Batcher._sample")
def sampled_apart(self, parts):
    """You call the sampler twice, for the decodes and for the prompts that are complete. Each call
    costs its time whatever the number of rows: one for all of them.
    """
    found = []
    for requests, logits in parts:
        if requests:
            requests, logits = self._without_faulty(requests, logits)
        if requests:
            both = requests, logits
            found += self._try(requests, lambda both=both: self._chosen(*both)) or []
    return found


@misconception("6.8", "Batcher.step")
def retired_after_the_forward(self):
    """You retire cancelled and late requests at the end of the step. So one more token is computed
    for somebody who has gone, and their room is free a step later.
    """
    self._errors, now = [], self.clock()
    for request in admit(self.waiting, self.room, now):
        self._start(request)
    plan = plan_step(self.running.values(), self.limits.step_tokens)
    decode = [request.row for request, _ in plan.decodes]
    prefill = {request.row: count for request, count in plan.prefills}
    parts = [self._compute(plan.decodes), self._compute(plan.prefills)]
    for request, token, told in self._sample(parts):
        self._emit(request, token, told)
    self._retire(now)
    self._check_when_idle()
    waiting = len(self.waiting)
    return Step(decode, prefill, plan.places, len(self.running), waiting, self._errors)


@misconception("6.8", "Batcher.step")
def one_rectangle_for_all(self):
    """You compute decodes and chunks in one padded forward. Every decode then takes as many places
    as the longest chunk, to use one of them: make two forwards, [B, 1] and [P, C].
    """
    self._errors, now = [], self.clock()
    self._retire(now)
    for request in admit(self.waiting, self.room, now):
        self._start(request)
    plan = plan_step(self.running.values(), self.limits.step_tokens)
    decode = [request.row for request, _ in plan.decodes]
    prefill = {request.row: count for request, count in plan.prefills}
    for request, token, told in self._sample([self._compute([*plan.decodes, *plan.prefills])]):
        self._emit(request, token, told)
    self._check_when_idle()
    waiting = len(self.waiting)
    return Step(decode, prefill, plan.places, len(self.running), waiting, self._errors)


@misconception("6.8", "Batcher._emit")
def listener_ends_the_step(self, request, token, told):
    """What a listener raises leaves your step, and with it the loop of everybody. It is one
    request's listener: end that request with "error", and go on with the next.
    """
    if request.state is State.PREFILL:
        request.move(State.DECODE)
    reason = emit(request, token, self.end_ids, told)
    if reason is not None:
        self._end(request, reason)
