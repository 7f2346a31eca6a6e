"""Chapter 06: one token out, and all the ways in which a request ends."""

from collections.abc import Collection

from torch import Tensor

from solutions.request import Request
from solutions.sampler import TokenLogProbs


def emit(
    request: Request, token: int, end_ids: Collection[int], told: TokenLogProbs | None = None
) -> str | None:
    """Hand the newest token out, and say whether the request is over with it.

    An end id ends it, "stop": it is not added and nobody is told, unless the request has
    ignore_eos. Any other token is added to the request, then given to its on_token. If that
    returns True, the request is over, "stop": what comes after is the listener's business, such as
    a stop string in the text. Otherwise it is over, "length", when its output has limit tokens.

    Args:
        request: in state DECODE.
        token: an int, as sampled.
        end_ids: the ids that end a text.
        told: how probable the token was, where the request wants to know; added with it.

    Returns:
        "stop", "length" or None. The request's state is still DECODE.

    Errors: what on_token raises goes on to the caller; the token has been added then.
    """
    # exercise 6.6
    if token in end_ids and not request.ignore_eos:
        return "stop"
    request.add(token, told)
    if request.on_token is not None and request.on_token(token) is True:
        return "stop"
    return "length" if len(request.output) >= request.limit else None


def end(request: Request, reason: str, error: Exception | None = None) -> Exception | None:
    """A request is over: finish it, then tell its on_finish, exactly once.

    Args:
        request: not finished yet; its room has been given back.
        reason, error: as in Request.finish.

    Returns:
        the Exception that on_finish raised, or None. It is the listener's fault, and changes
        nothing for the request: that stays as it is finished.

    Errors: what Request.finish raises; on_finish is not called then.
    """
    # exercise 6.6
    request.finish(reason, error)
    try:
        if request.on_finish is not None:
            request.on_finish(request)
    except Exception as problem:
        return problem
    return None


def usable_rows(logits: Tensor) -> list[bool]:
    """Which rows of logits a token can be chosen from: the others must not harm their neighbours.

    Args:
        logits: [B, V], any floating dtype. B may be 0.

    Returns:
        B bools: False where a row has NaN or +inf, or nothing but -inf.
    """
    # exercise 6.6
    return logits.amax(-1).isfinite().tolist()
