"""6.2 Request."""

import itertools
import math

from tests.parts import part


def method(m, name, change) -> None:
    """change(right, self, *args) takes the place of a method of Request."""
    right = getattr(m.Request, name)

    def changed(self, *args):
        return change(right, self, *args)

    setattr(m.Request, name, changed)


def fitted(m, known) -> None:
    """fit after the prompt has been changed to known(prompt, vocabulary)."""

    def change(right, self, context, vocabulary):
        kept, self.prompt = self.prompt, known(self.prompt, vocabulary)
        try:
            right(self, context, vocabulary)
        finally:
            self.prompt = kept

    method(m, "fit", change)


@part("6.2")
def true_is_a_token(m):
    """True passes for 1."""
    fitted(m, lambda prompt, v: [int(t) if isinstance(t, bool) else t for t in prompt])


@part("6.2")
def whole_floats_are_tokens(m):
    """2.0 passes for 2."""
    fitted(m, lambda prompt, v: [int(t) if isinstance(t, float) else t for t in prompt])


@part("6.2")
def one_id_too_many(m):
    """The size of the vocabulary passes for an id."""
    fitted(m, lambda prompt, v: [0 if t == v else t for t in prompt])


@part("6.2")
def negative_ids_wrap(m):
    """-1 passes for the last id."""
    fitted(m, lambda p, v: [t % v if isinstance(t, int) and t < 0 else t for t in p])


@part("6.2")
def only_the_first_id_is_looked_at(m):
    """Unknown ids behind the first pass."""
    fitted(m, lambda prompt, v: [*prompt[:1], *[0] * len(prompt[1:])])


@part("6.2")
def last_unknown_named(m):
    """Of several unknown ids the last is named."""
    fitted(m, lambda prompt, v: prompt[::-1])


@part("6.2")
def last_id_refused(m):
    """The last id of the vocabulary is unknown."""

    def change(right, self, context, vocabulary):
        right(self, context, vocabulary - 1)

    method(m, "fit", change)


@part("6.2")
def clamped_before_it_is_refused(m):
    """The limit is set even when fit raises."""

    def change(right, self, context, vocabulary):
        if self.state == "waiting" and len(self.prompt) < context:
            self.limit = min(self.params.max_tokens, context - len(self.prompt), 1)
        right(self, context, vocabulary)

    method(m, "fit", change)


@part("6.2")
def limit_only_shrinks(m):
    """fit clamps what it clamped before."""

    def change(right, self, context, vocabulary):
        before = self.limit
        right(self, context, vocabulary)
        self.limit = min(before, self.limit)

    method(m, "fit", change)


@part("6.2")
def half_the_context(m):
    """The answer gets one token less than there is room for."""

    def change(right, self, context, vocabulary):
        right(self, context, vocabulary)
        if self.limit == context - len(self.prompt) > 1:
            self.limit -= 1

    method(m, "fit", change)


@part("6.2")
def fits_at_any_time(m):
    """A request that was submitted is fitted again."""

    def change(right, self, *args):
        kept = self.arrival, self.state
        self.arrival, self.state = None, m.State.WAITING
        try:
            right(self, *args)
        finally:
            self.arrival, self.state = kept

    method(m, "fit", change)


@part("6.2")
def fits_while_it_waits(m):
    """Only the state is looked at, not the arrival."""

    def change(right, self, *args):
        kept, self.arrival = self.arrival, None
        try:
            right(self, *args)
        finally:
            self.arrival = kept

    method(m, "fit", change)


@part("6.2")
def size_of_the_wish(m):
    """size is what was asked for, not what it was clamped to."""
    m.Request.size = property(lambda self: len(self.prompt) + self.params.max_tokens)


@part("6.2")
def remaining_of_the_prompt(m):
    """remaining knows only the prompt."""
    m.Request.remaining = property(lambda self: max(len(self.prompt) - self.computed, 0))


@part("6.2")
def zero_is_no_deadline(m):
    """A time of 0.0 counts as none."""

    def expires(self):
        by = self.admit_by if self.state == "waiting" else None
        return min(self.deadline or math.inf, by or math.inf)

    m.Request.expires = property(expires)


@part("6.2")
def deadline_over_admit_by(m):
    """admit_by only counts where there is no deadline."""

    def expires(self):
        by = self.admit_by if self.state == "waiting" else None
        times = [t for t in (self.deadline, by) if t is not None]
        return times[0] if times else math.inf

    m.Request.expires = property(expires)


@part("6.2")
def all_that_remains(m):
    """upcoming gives more than was asked for."""
    method(m, "upcoming", lambda right, self, count: right(self, 10**6))


@part("6.2")
def upcoming_within_the_prompt(m):
    """A chunk does not reach from the prompt into the answer."""

    def change(right, self, count):
        left = len(self.prompt) - self.computed
        return right(self, min(count, left) if left > 0 else count)

    method(m, "upcoming", change)


@part("6.2")
def upcoming_joins_everything(m):
    """Prompt and answer are put together for each token."""

    def change(right, self, count):
        return [*self.prompt, *self.output][self.computed :][:count]

    method(m, "upcoming", change)


@part("6.2")
def upcoming_walks_everything(m):
    """The answer is copied before it is cut."""

    def change(right, self, count):
        whole = list(itertools.chain(self.prompt, self.output))
        return whole[self.computed : self.computed + count]

    method(m, "upcoming", change)


@part("6.2")
def moved_before_it_is_refused(m):
    """The state is set, then the table looked at."""

    def change(right, self, state):
        old = self.state
        if state not in m.FOLLOWS[old]:
            self.state = state
            raise RuntimeError(f"from {old} to {state}")
        right(self, state)

    method(m, "move", change)


@part("6.2")
def same_state_again(m):
    """A step from a state to itself is no error."""

    def change(right, self, state):
        if state != self.state:
            right(self, state)

    method(m, "move", change)


@part("6.2")
def old_state_not_named(m):
    """The message names the new state only."""

    def change(right, self, state):
        try:
            right(self, state)
        except RuntimeError:
            raise RuntimeError(f"{state} is not possible now") from None

    method(m, "move", change)


@part("6.2")
def sampler_not_told(m):
    """The sampler's memory does not hear of tokens."""

    def change(right, self, *args):
        kept, self.sampling = self.sampling, None
        try:
            right(self, *args)
        finally:
            self.sampling = kept

    method(m, "add", change)


@part("6.2")
def sampler_told_first(m):
    """The sampler's memory hears of tokens that are refused."""

    def change(right, self, token, *told):
        if self.state != "decode" and self.sampling is not None:
            self.sampling.add(token)
        right(self, token, *told)

    method(m, "add", change)


@part("6.2")
def nothing_told_is_kept(m):
    """None joins logprobs."""

    def change(right, self, token, told=None):
        right(self, token, told)
        if told is None:
            self.logprobs.append(None)

    method(m, "add", change)


@part("6.2")
def tokens_during_prefill(m):
    """A token is added in any state but FINISHED."""

    def change(right, self, *args):
        kept = self.state
        if kept != "finished":
            self.state = m.State.DECODE
        try:
            right(self, *args)
        finally:
            self.state = kept

    method(m, "add", change)


@part("6.2")
def error_forgotten(m):
    """The error is not kept."""
    method(m, "finish", lambda right, self, reason, error=None: right(self, reason))


@part("6.2")
def memory_kept(m):
    """The sampler's memory stays."""

    def change(right, self, *args):
        kept = self.sampling
        right(self, *args)
        self.sampling = kept

    method(m, "finish", change)


@part("6.2")
def any_reason(m):
    """A reason that nobody knows is as good."""

    def change(right, self, reason, *error):
        right(self, "stop", *error)
        self.finish_reason = reason

    method(m, "finish", change)


@part("6.2")
def reason_set_before_the_state(m):
    """The reason changes though the request was over."""

    def change(right, self, reason, *error):
        if reason in m.REASONS:
            self.finish_reason = reason
        right(self, reason, *error)

    method(m, "finish", change)


@part("6.2")
def finished_before_the_reason(m):
    """The state changes though the reason is unknown."""

    def change(right, self, reason, *error):
        if self.state != "finished":
            self.move(m.State.FINISHED)
            self.state = m.State.DECODE if reason in m.REASONS else self.state
        right(self, reason, *error)

    method(m, "finish", change)
