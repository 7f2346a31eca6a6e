"""Wrong versions of 3.7 relative_error and agreement."""

import math

from course.misconceptions import misconception


@misconception("3.7", "relative_error")
def mean_of_quotients(reference, other):
    """You divide number by number and average. Numbers close to zero then decide everything, and
    zeros make it infinite: one root of squares is divided by another.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    quotient = (other.double() - reference.double()).abs() / reference.double().abs()
    return float(quotient.mean())


@misconception("3.7", "relative_error")
def sum_of_differences(reference, other):
    """You compare sums of absolute values. The documented error is of squares: large errors weigh
    more, and that is how errors add up in a product.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.double().abs().sum())
    error = float((other.double() - reference.double()).abs().sum())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def never_rooted(reference, other):
    """You divide the squares and take no root. An error of a tenth is then reported as a
    hundredth.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.double().square().sum())
    error = float((other.double() - reference.double()).square().sum())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def by_the_other(reference, other):
    """You divide by the size of the wrong tensor. The reference is the measure: otherwise a
    result that is far too large looks better than it is.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(other.double().square().sum().sqrt())
    error = float((other.double() - reference.double()).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def sums_in_their_dtype(reference, other):
    """You square in the dtype of the tensors. In float16 squares above 255 are infinite and small
    ones vanish, and float32 has such limits too: go to float64 first.
    """
    if reference.shape != other.shape:
        raise ValueError(f"{list(reference.shape)} and {list(other.shape)}")
    size = float(reference.square().sum().sqrt())
    error = float((other - reference).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "relative_error")
def broadcast(reference, other):
    """You let torch broadcast. Two tensors of different shapes are not the same thing
    measured twice, and [3, 1] against [3, 4] should be an error, not a number.
    """
    size = float(reference.double().square().sum().sqrt())
    error = float((other.double() - reference.double()).square().sum().sqrt())
    return error / size if size else (math.inf if error else 0.0)


@misconception("3.7", "agreement")
def logits_compared(reference, other):
    """You compare the logits themselves. Those of two formats hardly ever agree to the last bit:
    compare which of them is the largest.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    return float((reference == other).double().mean())


@misconception("3.7", "agreement")
def along_the_tokens(reference, other):
    """You look for the largest logit along the tokens. Each position chooses among the vocabulary:
    argmax over the last dimension.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    return float((reference.argmax(0) == other.argmax(0)).double().mean())


@misconception("3.7", "agreement")
def until_they_part(reference, other):
    """You count the positions up to the first difference. Both read the same text, so that every
    position is a comparison of its own, also those after a difference.
    """
    if reference.shape != other.shape or not reference.numel():
        raise ValueError(f"{reference.shape} {other.shape}")
    same = (reference.argmax(-1) == other.argmax(-1)).double()
    return float(same.cumprod(0).mean())
