"""6.8 Batcher: cancelled, too late, failed; and whom it concerns."""

from tests.parts import part
from tests.wrong.batcher.serving import method, recorded, remade


@part("6.8")
def cancelled_while_running_only(m):
    """Who waits cannot be cancelled."""

    def change(right, self, request):
        if self.running.get(request.row) is request:
            right(self, request)

    method(m, "cancel", change)


@part("6.8")
def cancelled_while_waiting_only(m):
    """Who runs cannot be cancelled."""

    def change(right, self, request):
        if request.state == "waiting":
            right(self, request)

    method(m, "cancel", change)


@part("6.8")
def states_are_made_without_a_guard(m):
    """A SamplingState that cannot be made stops the step, and its row is never given back."""

    def change(right, self, request):
        self.running[request.row] = request
        request.sampling = self.sampler.SamplingState(request.params, request.prompt)

    method(m, "_start", change)


@part("6.8")
def cancelled_in_decode_only(m):
    """Whose prompt is being read cannot be cancelled."""

    def change(right, self, request):
        if request.state != "prefill":
            right(self, request)

    method(m, "cancel", change)


@part("6.8")
def cancelled_again(m):
    """Who is cancelled after the end is told so."""

    def change(right, self, now):
        over = [r for r in self._cancelled if r.state == "finished"]
        right(self, now)
        for request in over:
            request.finish_reason = "cancelled"
            if request.on_finish is not None:
                request.on_finish(request)

    method(m, "_retire", change)


@part("6.8")
def cancelled_before_it_was_submitted(m):
    """Who was cancelled before it came is cancelled when it comes."""
    known = []

    def cancel(right, self, request):
        known.append(request)
        right(self, request)

    def submit(right, self, request):
        right(self, request)
        if request in known:
            self._cancelled.append(request)

    method(m, "cancel", cancel)
    method(m, "submit", submit)


@part("6.8")
def one_cancelled_a_step(m):
    """Only one of those who were cancelled ends in a step."""

    def change(right, self, now):
        later = [self._cancelled.pop() for _ in range(len(self._cancelled) - 1)]
        right(self, now)
        self._cancelled.extend(reversed(later))

    method(m, "_retire", change)


@part("6.8")
def admitted_before_others_leave(m):
    """Requests are admitted first; who leaves makes room for the next step."""

    def change(right, self, now):
        for request in m.admit(self.waiting, self.room, now):
            self._start(request)
        right(self, now)
        self.full = True

    def step(right, self):
        kept = m.admit
        retire = self._retire

        def once(now):
            retire(now)
            m.admit = lambda *args: []

        self._retire = once
        try:
            return right(self)
        finally:
            del self._retire
            m.admit = kept

    method(m, "_retire", change)
    method(m, "step", step)


@part("6.8")
def late_after_the_moment(m):
    """The very moment of the deadline does not count."""

    def change(right, self, now):
        right(self, now - 1e-9)

    method(m, "_retire", change)


@part("6.8")
def late_only_while_it_waits(m):
    """Who runs has no deadline."""

    def change(right, self, now):
        kept = {r: r.deadline for r in self.running.values()}
        for request in kept:
            request.deadline = None
        right(self, now)
        for request, deadline in kept.items():
            request.deadline = deadline

    method(m, "_retire", change)


@part("6.8")
def late_only_while_it_runs(m):
    """Who waits has no deadline."""
    m.WaitingQueue.expired = lambda self, now: []


@part("6.8")
def late_to_begin_while_it_runs(m):
    """admit_by counts after admission."""

    def change(right, self, now):
        for request in list(self.running.values()):
            if request.admit_by is not None and request.admit_by <= now:
                self._end(request, "timeout")
        right(self, now)

    method(m, "_retire", change)


@part("6.8")
def late_is_cancelled(m):
    """The reason of who is late is "cancelled"."""

    def change(right, self, request, reason, *error):
        right(self, request, "cancelled" if reason == "timeout" else reason, *error)

    method(m, "_end", change)


@part("6.8")
def errors_pile_up(m):
    """Step.errors has those of earlier steps too."""

    def change(self, step):
        self.__dict__.setdefault("all_errors", []).extend(step.errors)
        return remade(m, step, errors=list(self.all_errors))

    recorded(m, change)


@part("6.8")
def errors_unsaid(m):
    """Step.errors is always empty."""
    recorded(m, lambda self, step: remade(m, step, errors=[]))


@part("6.8")
def an_error_for_each(m):
    """An exception is told once for each request that it ended."""

    def change(right, self, requests, error):
        right(self, requests, error)
        self._errors += [error] * (len(requests) - 1)

    method(m, "_fail", change)


@part("6.8")
def errors_of_on_finish_unsaid(m):
    """What on_finish raises is lost."""

    def change(right, self, *args):
        before = len(self._errors)
        right(self, *args)
        del self._errors[before:]

    method(m, "_end", change)


@part("6.8")
def error_without_the_exception(m):
    """The request does not know what ended it."""
    method(m, "_end", lambda right, self, request, reason, error=None: right(self, request, reason))


@part("6.8")
def failed_keep_their_rows(m):
    """Who ends by an error keeps its room."""

    def change(right, self, request, reason, *error):
        if reason != "error":
            return right(self, request, reason, *error)
        self.running.pop(request.row, None)
        m.end(request, reason, *error)

    method(m, "_end", change)


@part("6.8")
def nothing_escapes(m):
    """Ctrl-C in a forward ends requests, and the loop goes on."""

    def attempt(self, requests, call):
        try:
            return call()
        except BaseException as error:
            self._fail(requests, error)
            return None

    m.Batcher._try = attempt


@part("6.8")
def model_errors_go_on(m):
    """When a forward fails, step raises."""

    def change(right, self, chunks):
        return m.compute(self.model, self.cache, chunks)

    method(m, "_compute", change)


@part("6.8")
def sampler_errors_go_on(m):
    """When the sampler fails, step raises."""

    def attempt(self, requests, call, right=m.Batcher._try):
        found = []

        def watched():
            found.append(call())
            return found[-1]

        result = right(self, requests, watched)
        if not found and str(self._errors[-1]).startswith("sample "):
            raise self._errors[-1]
        return result

    m.Batcher._try = attempt


@part("6.8")
def only_the_first_fails(m):
    """Of those in a forward that failed only one ends; the others try again."""
    method(m, "_fail", lambda right, self, requests, error: right(self, requests[:1], error))


@part("6.8")
def faulty_logits_cost_a_step(m):
    """Neighbours of faulty logits get no token in that step."""

    def change(right, self, requests, logits):
        kept, rows = right(self, requests, logits)
        if len(kept) < len(requests):
            for request in kept:
                request.computed -= 1
            return [], rows[:0]
        return kept, rows

    method(m, "_without_faulty", change)


@part("6.8")
def faulty_logits_are_a_value_error(m):
    """The exception is of another kind."""

    def change(right, self, requests, error):
        right(
            self, requests, ValueError(str(error)) if isinstance(error, ArithmeticError) else error
        )

    method(m, "_fail", change)


@part("6.8")
def faulty_logits_in_the_middle(m):
    """Logits in the middle of a prompt are looked at too."""

    def change(right, self, chunks):
        forward, bad = self.model.forward, []

        def watched(*args, **named):
            logits = forward(*args, **named)
            bad.extend(n for n, fine in enumerate(m.usable_rows(logits)) if not fine)
            return logits

        self.model.forward = watched
        try:
            requests, logits = right(self, chunks)
        finally:
            self.model.forward = forward
        for place in bad:
            if chunks[place][0] not in requests:
                self._fail([chunks[place][0]], FloatingPointError("not finite"))
        return requests, logits

    method(m, "_compute", change)


@part("6.8")
def listener_error_ends_nobody(m):
    """What on_token raises is noted, and the request goes on."""

    def change(right, self, request, token, told):
        fail, self._fail = self._fail, lambda requests, error: self._errors.append(error)
        try:
            right(self, request, token, told)
        finally:
            self._fail = fail

    method(m, "_emit", change)


@part("6.8")
def listener_error_drops_the_token(m):
    """After an error of on_token the token is not in the output."""

    def change(right, self, requests, error):
        if str(error).startswith("the listener"):
            requests[0].output.pop()
        right(self, requests, error)

    method(m, "_fail", change)
