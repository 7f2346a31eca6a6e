"""6.8: the rarer side of a promise."""

from tests.parts import part
from tests.wrong.batcher.serving import method, remade


@part("6.8")
def cancelled_by_row(m):
    """Whoever has a row that is in use here is ended: also one that runs elsewhere."""

    def change(right, self, now):
        for request in self._cancelled:
            if request.row in self.running and self.running[request.row] is not request:
                self._end(request, "cancelled")
        right(self, now)

    method(m, "_retire", change)


@part("6.8")
def cancelled_by_id(m):
    """All who have the id of a cancelled one end."""

    def change(right, self, now):
        names = {request.id for request in self._cancelled}
        both = [*self.running.values(), *self.waiting]
        self._cancelled.extend(request for request in both if request.id in names)
        right(self, now)

    method(m, "_retire", change)


@part("6.8")
def late_before_cancelled(m):
    """Who is cancelled and late ends as late."""

    def change(right, self, now):
        for request in [r for r in self.running.values() if r.expires <= now]:
            self._end(request, "timeout")
        right(self, now)

    method(m, "_retire", change)


@part("6.8")
def report_unguarded(m):
    """What report raises leaves the step."""

    def change(right, self, parts):
        kept, problems = self.sampler.report, []

        def report(*args):
            try:
                return kept(*args)
            except Exception as error:
                problems.append(error)
                raise

        self.sampler.report = report
        found = right(self, parts)
        self.sampler.report = kept
        if problems:
            raise problems[0]
        return found

    method(m, "_sample", change)


@part("6.8")
def a_failed_forward_is_none(m):
    """A step with a fault says that it computed nothing."""

    def change(right, self):
        step = right(self)
        return remade(m, step, decode=[], prefill={}, places=0) if step.errors else step

    method(m, "step", change)


@part("6.8")
def all_are_kept(m):
    """A list of all who were served grows for ever."""

    def change(right, self, request, reason, error=None):
        right(self, request, reason, error)
        self.__dict__.setdefault("served", []).append(request)

    method(m, "_end", change)


@part("6.8")
def one_fault_a_step(m):
    """After a fault the rest of the step is left out."""

    def change(right, self, chunks):
        return ([], None) if self._errors else right(self, chunks)

    method(m, "_compute", change)


@part("6.8")
def over_and_still_running(m):
    """on_finish is called while the request is in `running`."""

    def change(right, self, request, reason, error=None):
        row = request.row
        self.room.give_back(request)
        problem = m.end(request, reason, error)
        self.running.pop(row, None)
        if problem is not None:
            self._errors.append(problem)

    method(m, "_end", change)
