"""Wrong versions of 5.1 apply_temperature and softmax."""

from course.misconceptions import misconception
from solutions.sampling import HIDDEN


@misconception("5.1", "apply_temperature")
def temperature_multiplied(logits, temperature):
    """You multiply by the temperature. Divide: a temperature below 1 makes the differences larger,
    and so the most probable token more probable.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    scaled = shifted * temperature.float()[:, None]
    greedy = (temperature == 0).nonzero()[:, 0]
    scaled[greedy] = HIDDEN
    scaled[greedy, wide[greedy].argmax(-1)] = 0.0
    return scaled


@misconception("5.1", "apply_temperature")
def temperature_before_the_largest_is_gone(logits, temperature):
    """You divide first and take the largest away afterwards. At a tiny temperature the quotient is
    infinite, and infinity minus infinity is NaN. Subtract first, then divide.
    """
    heat = temperature.float()[:, None]
    scaled = logits.float() / heat.where(heat > 0, 1.0)
    scaled = scaled - scaled.amax(-1, keepdim=True)
    greedy = (heat[:, 0] == 0).nonzero()[:, 0]
    scaled[greedy] = HIDDEN
    scaled[greedy, logits[greedy].float().argmax(-1)] = 0.0
    return scaled


@misconception("5.1", "apply_temperature")
def temperature_over_the_largest(logits, temperature):
    """You divide, and leave the largest logit where it is. It has to go first, so that the largest
    of the result is 0 and a tiny temperature makes nothing infinite.
    """
    wide, heat = logits.float(), temperature.float()[:, None]
    scaled = wide / heat.where(heat > 0, 1.0)
    greedy = (heat[:, 0] == 0).nonzero()[:, 0]
    scaled[greedy] = HIDDEN
    scaled[greedy, wide[greedy].argmax(-1)] = 0.0
    return scaled


@misconception("5.1", "apply_temperature")
def temperature_at_least_a_hundredth(logits, temperature):
    """You take 0.01 for every temperature below it. Greedy is one token, of equals the lowest id,
    and 0.001 is another temperature than 0.01: 0 needs a line of its own, the others none.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    return shifted / temperature.float().clamp(min=0.01)[:, None]


@misconception("5.1", "apply_temperature")
def temperature_zero_divides(logits, temperature):
    """At temperature 0 you divide like at any other: 0 / 0 is NaN for the largest logit.
    Temperature 0 means greedy and needs a line of its own.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    return shifted / temperature.float()[:, None]


@misconception("5.1", "apply_temperature")
def temperature_zero_replaced(logits, temperature):
    """You put a small number in the place of temperature 0. Equal logits then share the
    probability, and near ones get a little: greedy means one token, of equals the lowest id.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    return shifted / temperature.float().clamp(min=1e-5)[:, None]


@misconception("5.1", "apply_temperature")
def temperature_zero_keeps_equals(logits, temperature):
    """At temperature 0 you keep every token that equals the largest. Only the one with the lowest
    id stays: argmax finds it.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    heat = temperature.float()[:, None]
    scaled = shifted / heat.where(heat > 0, 1.0)
    greedy = (heat == 0).expand_as(scaled)
    return scaled.masked_fill(greedy & (shifted < 0), HIDDEN)


@misconception("5.1", "apply_temperature")
def temperature_of_the_first_row(logits, temperature):
    """You use the temperature of the first row for all. Every row has its own: temperature[:, None]
    divides row by row.
    """
    wide = logits.float()
    shifted = wide - wide.amax(-1, keepdim=True)
    if float(temperature[0]) > 0:
        return shifted / temperature[0].float()
    best = wide.argmax(-1, keepdim=True)
    return shifted.fill_(HIDDEN).scatter(-1, best, 0.0)


@misconception("5.1", "apply_temperature")
def temperature_in_16_bits(logits, temperature):
    """You subtract and divide in the dtype of the logits and widen afterwards. float16 ends at
    65504, and 16 bits round every step: go to float32 first.
    """
    shifted = logits - logits.amax(-1, keepdim=True)
    heat = temperature.to(logits.dtype)[:, None]
    scaled = (shifted / heat.where(heat > 0, 1.0)).float()
    greedy = (heat[:, 0] == 0).nonzero()[:, 0]
    scaled[greedy] = HIDDEN
    scaled[greedy, logits[greedy].argmax(-1)] = 0.0
    return scaled


@misconception("5.1", "softmax")
def softmax_that_overflows(logits):
    """You take exp of the logits as they are. exp(89) is infinite in float32, and very negative
    logits all become 0: subtract the row's largest first, which changes nothing in the quotient.
    """
    powers = logits.float().exp()
    return powers / powers.sum(-1, keepdim=True)


@misconception("5.1", "softmax")
def softmax_over_the_batch(logits):
    """Your sums run over the rows of the batch. Each row is a distribution of its own: dimension
    -1.
    """
    wide = logits.float()
    powers = (wide - wide.amax(0)).exp()
    return powers / powers.sum(0)


@misconception("5.1", "softmax")
def softmax_with_one_largest(logits):
    """You subtract the largest logit of the whole batch. A row far below it becomes zeros, and 0 /
    0 is NaN: take each row's own largest, amax(-1, keepdim=True).
    """
    wide = logits.float()
    powers = (wide - wide.max()).exp()
    return powers / powers.sum(-1, keepdim=True)


@misconception("5.1", "softmax")
def softmax_in_16_bits(logits):
    """You compute in the dtype of the logits. Sums of thousands of 16-bit numbers are off by per
    cents: go to float32 first.
    """
    powers = (logits - logits.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).float()
