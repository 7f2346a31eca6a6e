"""Wrong versions of 6.6 emit, end and usable_rows."""

from course.misconceptions import misconception


@misconception("6.6", "emit")
def end_id_told(request, token, end_ids, told=None):
    """You add the end id, and tell the listener. It says that the text is over and is no part of
    it: look for it before you add anything.
    """
    request.add(token, told)
    stop = request.on_token is not None and request.on_token(token) is True
    if stop or (token in end_ids and not request.ignore_eos):
        return "stop"
    return "length" if len(request.output) >= request.limit else None


@misconception("6.6", "emit")
def anything_true_stops(request, token, end_ids, told=None):
    """You stop at whatever counts as true. Listeners return all sorts of things, such as the text
    that they have just printed; only True itself means stop.
    """
    if token in end_ids and not request.ignore_eos:
        return "stop"
    request.add(token, told)
    if request.on_token is not None and request.on_token(token):
        return "stop"
    return "length" if len(request.output) >= request.limit else None


@misconception("6.6", "emit")
def length_before_the_listener(request, token, end_ids, told=None):
    """You look at the limit before you look at what the listener says. When the last token
    completes a stop string, the reason is "stop".
    """
    if token in end_ids and not request.ignore_eos:
        return "stop"
    request.add(token, told)
    stop = request.on_token is not None and request.on_token(token) is True
    if len(request.output) >= request.limit:
        return "length"
    return "stop" if stop else None


@misconception("6.6", "end")
def told_before_it_is_over(request, reason, error=None):
    """You call on_finish before the request is finished: the listener sees no reason yet, and if it
    fails, the request never ends. Finish first.
    """
    try:
        if request.on_finish is not None:
            request.on_finish(request)
    except Exception as problem:
        return problem
    request.finish(reason, error)
    return None


@misconception("6.6", "end")
def listener_may_break_it(request, reason, error=None):
    """What your on_finish raises goes through. One broken listener then ends the loop of everybody:
    catch the Exception and return it.
    """
    request.finish(reason, error)
    if request.on_finish is not None:
        request.on_finish(request)


@misconception("6.6", "usable_rows")
def every_number_finite(logits):
    """You call a row unusable as soon as one of its logits is not finite. -inf is a token that
    cannot come, which is allowed; only NaN, +inf, or nothing but -inf are not.
    """
    return logits.isfinite().all(-1).tolist()


@misconception("6.6", "usable_rows")
def only_nan_is_bad(logits):
    """You look for NaN only. +inf makes NaN in the softmax, and of nothing but -inf no token can be
    chosen: these rows are no use either.
    """
    return (~logits.isnan().any(-1)).tolist()
