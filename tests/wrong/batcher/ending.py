"""6.6 emit, end and usable_rows."""

import torch

from tests.parts import part


def emitted(m, change) -> None:
    """change(right, request, token, end_ids, told) takes emit's place."""
    right = m.emit

    def emit(request, token, end_ids, told=None):
        return change(right, request, token, end_ids, told)

    m.emit = emit


@part("6.6")
def end_ids_indexed(m):
    """A set of end ids fails."""
    emitted(m, lambda right, r, t, ends, told: right(r, t, [*ends[:]], told))


@part("6.6")
def end_id_zero_unseen(m):
    """The end id 0 is left out, as false."""
    emitted(m, lambda right, r, t, ends, told: right(r, t, [e for e in ends if e], told))


@part("6.6")
def first_end_id_only(m):
    """Only one end id is known."""
    emitted(m, lambda right, r, t, ends, told: right(r, t, list(ends)[:1], told))


@part("6.6")
def ignored_and_untold(m):
    """With ignore_eos an end id is swallowed."""

    def change(right, request, token, ends, told):
        if token in ends and request.ignore_eos:
            return None
        return right(request, token, ends, told)

    emitted(m, change)


def listening(m, change) -> None:
    """change(listener, request, token) is what on_token does instead."""

    def other(right, request, token, ends, told):
        kept = request.on_token
        if kept is not None:
            request.on_token = lambda token: change(kept, request, token)
        try:
            return right(request, token, ends, told)
        finally:
            request.on_token = kept

    emitted(m, other)


@part("6.6")
def told_before_it_is_added(m):
    """on_token is called, then the token added."""

    def change(listener, request, token):
        request.output.pop()
        try:
            return listener(token)
        finally:
            request.output.append(token)

    listening(m, change)


@part("6.6")
def probabilities_afterwards(m):
    """logprobs grow after on_token was called."""

    def change(right, request, token, ends, told):
        reason = right(request, token, ends)
        if told is not None and request.output[-1:] == [token] and token not in ends:
            request.logprobs.append(told)
        return reason

    emitted(m, change)


@part("6.6")
def probabilities_of_the_end_id(m):
    """logprobs has an entry for the end id."""

    def change(right, request, token, ends, told):
        if token in ends and told is not None:
            request.logprobs.append(told)
        return right(request, token, ends, told)

    emitted(m, change)


@part("6.6")
def errors_swallowed(m):
    """What on_token raises is lost."""

    def change(listener, request, token):
        try:
            return listener(token)
        except Exception:
            return None

    listening(m, change)


@part("6.6")
def errors_are_stops(m):
    """A listener that raises wants to stop."""

    def change(listener, request, token):
        try:
            return listener(token)
        except Exception:
            return True

    listening(m, change)


@part("6.6")
def token_taken_back(m):
    """After an error of on_token the token is not in the output."""

    def change(listener, request, token):
        try:
            return listener(token)
        except BaseException:
            request.output.pop()
            raise

    listening(m, change)


@part("6.6")
def one_is_true(m):
    """1 counts as True."""
    listening(m, lambda listener, request, token: listener(token) == 1)


@part("6.6")
def false_stops(m):
    """Whatever is not None stops."""
    listening(m, lambda listener, request, token: listener(token) is not None)


@part("6.6")
def one_token_more(m):
    """The answer ends one token after its limit."""

    def change(right, request, token, ends, told):
        request.limit += 1
        try:
            return right(request, token, ends, told)
        finally:
            request.limit -= 1

    emitted(m, change)


@part("6.6")
def limit_of_the_wish(m):
    """max_tokens counts, not the limit it was clamped to."""

    def change(right, request, token, ends, told):
        kept, request.limit = request.limit, request.params.max_tokens + 1
        try:
            return right(request, token, ends, told)
        finally:
            request.limit = kept

    emitted(m, change)


@part("6.6")
def finished_by_emit(m):
    """emit moves the request to FINISHED."""

    def change(right, request, token, ends, told):
        reason = right(request, token, ends, told)
        if reason:
            request.finish(reason)
        return reason

    emitted(m, change)


def ended(m, change) -> None:
    """change(right, request, reason, error) takes end's place."""
    right = m.end

    def end(request, reason, error=None):
        return change(right, request, reason, error)

    m.end = end


@part("6.6")
def told_twice(m):
    """on_finish is called two times."""

    def change(right, request, reason, error):
        found = right(request, reason, error)
        if request.on_finish is not None:
            request.on_finish(request)
        return found

    ended(m, change)


@part("6.6")
def told_although_it_was_over(m):
    """on_finish is called though finish raises."""

    def change(right, request, reason, error):
        try:
            return right(request, reason, error)
        except (RuntimeError, ValueError):
            if request.on_finish is not None:
                request.on_finish(request)
            raise

    ended(m, change)


@part("6.6")
def quiet_when_it_was_over(m):
    """To end it again does nothing."""

    def change(right, request, reason, error):
        return None if request.state == "finished" else right(request, reason, error)

    ended(m, change)


@part("6.6")
def nothing_escapes(m):
    """Ctrl-C in on_finish is returned."""

    def end(request, reason, error=None):
        request.finish(reason, error)
        try:
            if request.on_finish is not None:
                request.on_finish(request)
        except BaseException as problem:
            return problem
        return None

    m.end = end


@part("6.6")
def listener_error_unsaid(m):
    """What on_finish raises is lost."""
    ended(m, lambda right, *args: right(*args) and None)


@part("6.6")
def listener_error_becomes_its_own(m):
    """What on_finish raises is the request's error."""

    def change(right, request, reason, error):
        problem = right(request, reason, error)
        if problem is not None:
            request.finish_reason, request.error = "error", problem
        return problem

    ended(m, change)


@part("6.6")
def error_after_the_listener(m):
    """The error is set when on_finish has been called."""

    def change(right, request, reason, error):
        problem = right(request, reason)
        request.error = error
        return problem

    ended(m, change)


@part("6.6")
def request_given_back(m):
    """end returns the request."""
    ended(m, lambda right, request, *args: right(request, *args) or request)


def usable(m, change) -> None:
    """change(right, logits) takes the place of usable_rows."""
    right = m.usable_rows
    m.usable_rows = lambda logits: change(right, logits)


@part("6.6")
def nothing_is_possible(m):
    """A row of nothing but -inf passes."""
    usable(m, lambda right, x: right(torch.where(x.isneginf(), 0.0, x)))


@part("6.6")
def first_column_only(m):
    """Only the first column is looked at."""
    usable(m, lambda right, x: right(x[:, :1]))


@part("6.6")
def sum_is_finite(m):
    """The sum of the row is looked at, which may be too large in 16 bits."""
    usable(m, lambda right, x: right(x.abs().masked_fill(x.isneginf(), 0).sum(-1, keepdim=True)))


@part("6.6")
def a_tensor_of_bools(m):
    """The answer is a tensor."""
    usable(m, lambda right, x: torch.tensor(right(x)))


@part("6.6")
def one_answer_for_all(m):
    """One bad row makes all unusable."""
    usable(m, lambda right, x: [all(right(x))] * len(x))


@part("6.6")
def logits_mended(m):
    """NaN is replaced in the caller's logits."""

    def change(right, logits):
        found = right(logits)
        logits.nan_to_num_(0.0)
        return found

    usable(m, change)
