"""5.1 to 5.3 and 5.5: numbers that are wrong in a corner."""

import torch

from tests.parts import part

INF = float("inf")


def narrow(logits):
    """The logits as a 16-bit computation would leave them."""
    return logits.bfloat16().to(logits.dtype)


@part("5.1")
def temperature_of_two_rows_only(m):
    """The rows after the second have the temperature of the second."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        return right(logits, temperature[torch.arange(len(logits)).clamp(max=1)])

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_zero_for_all_or_none(m):
    """One row at 0 makes all rows greedy."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        if bool((temperature == 0).any()):
            temperature = torch.zeros_like(temperature)
        return right(logits, temperature)

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_zero_by_the_last_of_equals(m):
    """Of equals the highest id is left."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        cold = (temperature == 0)[:, None]
        return torch.where(
            cold, right(logits.flip(-1), temperature).flip(-1), right(logits, temperature)
        )

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_without_the_shift(m):
    """Divided, but the largest is not 0."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        wide, heat = logits.float(), temperature.float()[:, None]
        return torch.where(heat > 1e-3, wide / heat.clamp(min=1e-3), right(logits, temperature))

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_floor(m):
    """Below 0.01 it is 0.01."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        return right(logits, torch.where(temperature > 0, temperature.clamp(min=0.01), temperature))

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_of_hidden_is_large(m):
    """-inf becomes a large negative number."""
    right = m.apply_temperature
    m.apply_temperature = lambda logits, t: right(logits, t).clamp(min=-3e38)


@part("5.1")
def temperature_keeps_the_dtype(m):
    """16 bits come back as 16 bits."""
    right = m.apply_temperature
    m.apply_temperature = lambda logits, t: right(logits, t).to(logits.dtype)


@part("5.1")
def temperature_needs_more_than_one_row(m):
    """A batch of one loses its first dimension."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        found = right(logits, temperature)
        return found[0] if len(found) == 1 else found

    m.apply_temperature = apply_temperature


@part("5.1")
def temperature_in_place(m):
    """float32 logits are changed."""
    right = m.apply_temperature

    def apply_temperature(logits, temperature):
        found = right(logits, temperature)
        if logits.dtype == torch.float32:
            logits.sub_(logits.amax(-1, keepdim=True))
        return found

    m.apply_temperature = apply_temperature


@part("5.1")
def softmax_with_a_small_number(m):
    """1e-9 in every probability, hidden ones too."""
    right = m.softmax
    m.softmax = lambda logits: right(logits) + 1e-9


@part("5.1")
def softmax_keeps_the_dtype(m):
    """16 bits come back as 16 bits."""
    right = m.softmax
    m.softmax = lambda logits: right(logits).to(logits.dtype)


@part("5.1")
def softmax_clamped_at_80(m):
    """exp of at most 80."""
    right = m.softmax
    m.softmax = lambda logits: right(logits.float().clamp(max=80))


@part("5.1")
def softmax_clamped_below(m):
    """Nothing is below -80 under the largest."""

    def softmax(logits):
        wide = logits.float()
        powers = (wide - wide.amax(-1, keepdim=True)).clamp(min=-80).exp()
        return powers / powers.sum(-1, keepdim=True)

    m.softmax = softmax


@part("5.1")
def softmax_summed_in_bfloat16(m):
    """The sum is rounded to bfloat16 for 16-bit logits."""

    def softmax(logits):
        wide = logits.float()
        powers = (wide - wide.amax(-1, keepdim=True)).exp()
        total = powers.sum(-1, keepdim=True)
        return powers / (total if logits.dtype == torch.float32 else total.bfloat16().float())

    m.softmax = softmax


@part("5.2")
def top_k_at_most_fifty(m):
    """A k above 50 is 50."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: right(logits, k.clamp(max=50))


@part("5.2")
def top_k_off_at_minus_one_only(m):
    """0 keeps one token."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: right(logits, torch.where(k == 0, 1, k))


@part("5.2")
def top_k_off_at_zero_only(m):
    """-1 keeps all but one."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: right(logits, torch.where(k < 0, logits.shape[-1] + k, k))


@part("5.2")
def top_k_off_for_one_is_off_for_all(m):
    """One row that is off switches all off."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: logits if bool((k <= 0).any()) else right(logits, k)


@part("5.2")
def top_k_counts_hidden_logits(m):
    """-inf logits are replaced by 0 when the k-th is -inf."""
    right = m.keep_top_k

    def keep_top_k(logits, k):
        return right(logits.masked_fill(logits == -INF, -1.0), k)

    m.keep_top_k = keep_top_k


@part("5.2")
def top_k_widens(m):
    """The result is float32."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: right(logits, k).float()


@part("5.2")
def top_k_with_the_smallest_finite(m):
    """Hidden is the smallest number of the dtype, not -inf."""
    right = m.keep_top_k
    m.keep_top_k = lambda logits, k: right(logits, k).clamp(min=torch.finfo(logits.dtype).min)


@part("5.2")
def top_k_needs_int64(m):
    """int32 is an error."""
    right = m.keep_top_k

    def keep_top_k(logits, k):
        if k.dtype != torch.int64:
            raise RuntimeError("gather(): Expected dtype int64 for index")
        return right(logits, k)

    m.keep_top_k = keep_top_k


@part("5.2")
def top_k_drops_equals_of_the_edge(m):
    """Where there are equals of the k-th, all of them go, unless k is 1."""
    right = m.keep_top_k

    def keep_top_k(logits, k):
        found = right(logits, k)
        kept = (found > -INF).sum(-1)
        over = (kept > k) & (k > 1) & (k < logits.shape[-1])
        edge = found.masked_fill(found == -INF, INF).amin(-1, keepdim=True)
        return torch.where(over[:, None] & (found == edge), -INF, found).to(found.dtype)

    m.keep_top_k = keep_top_k


@part("5.2")
def top_p_of_one_row(m):
    """The first row's p for all."""
    right = m.keep_top_p
    m.keep_top_p = lambda logits, p: right(logits, p[:1].expand(len(p)))


@part("5.2")
def top_p_one_is_nearly_one(m):
    """p = 1 is 0.999."""
    right = m.keep_top_p
    m.keep_top_p = lambda logits, p: right(logits, p.clamp(max=0.999))


@part("5.2")
def top_p_without_a_share_for_the_hidden(m):
    """Probabilities are not shared out anew: hidden logits count as if they were -10."""
    right = m.keep_top_p

    def keep_top_p(logits, p):
        found = right(logits.masked_fill(logits == -INF, -1.0), p)
        return found.masked_fill(logits == -INF, -INF)

    m.keep_top_p = keep_top_p


@part("5.2")
def top_p_looks_at_a_thousand(m):
    """Only the 1,000 most probable tokens are looked at; the others go."""
    right = m.keep_top_p

    def keep_top_p(logits, p):
        count = min(1000, logits.shape[-1])
        edge = logits.topk(count).values[:, -1:]
        return right(logits.masked_fill((logits < edge) & (p < 1)[:, None], -INF), p)

    m.keep_top_p = keep_top_p


@part("5.2")
def top_p_of_all_or_none(m):
    """One row at 1 switches all rows off."""
    right = m.keep_top_p
    m.keep_top_p = lambda logits, p: logits if bool((p == 1).any()) else right(logits, p)


@part("5.2")
def top_p_in_16_bits(m):
    """Probabilities and sums in the dtype of the logits."""
    right = m.keep_top_p

    def keep_top_p(logits, p):
        if logits.dtype == torch.float32:
            return right(logits, p)
        ordered, ids = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        hidden = (ordered.cumsum(-1) - ordered >= p[:, None]) & (p < 1)[:, None]
        hidden[:, 0] = False
        return logits.masked_fill(hidden.scatter(-1, ids, hidden), -INF)

    m.keep_top_p = keep_top_p


@part("5.2")
def top_p_at_least_two(m):
    """The second token stays as well."""
    right = m.keep_top_p

    def keep_top_p(logits, p):
        found = right(logits, p)
        two = logits.topk(min(2, logits.shape[-1])).values[:, -1:]
        return torch.where(logits >= two, logits, found)

    m.keep_top_p = keep_top_p


@part("5.2")
def min_p_of_one_row(m):
    """The first row's p for all."""
    right = m.keep_min_p
    m.keep_min_p = lambda logits, p: right(logits, p[:1].expand(len(p)))


@part("5.2")
def min_p_of_the_batch(m):
    """The largest probability of the whole batch."""

    def keep_min_p(logits, p):
        shares = m.softmax(logits)
        return logits.masked_fill(shares < p.float()[:, None] * shares.max(), -INF)

    m.keep_min_p = keep_min_p


@part("5.2")
def min_p_zero_hides_zeros(m):
    """0 hides what has no probability in float32."""
    right = m.keep_min_p

    def keep_min_p(logits, p):
        return right(logits, p).masked_fill(m.softmax(logits) == 0, -INF)

    m.keep_min_p = keep_min_p


@part("5.2")
def min_p_with_log_of_two(m):
    """The base-2 logarithm."""

    def keep_min_p(logits, p):
        wide = logits.float()
        least = wide.amax(-1, keepdim=True) + p.float().log2()[:, None]
        return logits.masked_fill(wide < least, -INF)

    m.keep_min_p = keep_min_p


@part("5.3")
def penalties_need_int64(m):
    """Other integers are an error."""
    right = m.penalize

    def penalize(logits, rows, ids, written, *wish):
        if {rows.dtype, ids.dtype} != {torch.int64}:
            raise IndexError("tensors used as indices must be long")
        return right(logits, rows, ids, written, *wish)

    m.penalize = penalize


@part("5.3")
def penalties_need_tokens(m):
    """Without any token it fails."""
    right = m.penalize

    def penalize(logits, rows, *args):
        rows.max()
        return right(logits, rows, *args)

    m.penalize = penalize


@part("5.3")
def penalties_of_hidden_become_nan(m):
    """-inf times 0 where the token is hidden."""
    right = m.penalize

    def penalize(logits, rows, ids, *args):
        found = right(logits, rows, ids, *args)
        return found + (found - found) if bool((logits == -INF).any()) else found

    m.penalize = penalize


@part("5.3")
def penalties_in_16_bits(m):
    """The arithmetic is in the dtype of the logits."""
    right = m.penalize
    m.penalize = lambda logits, *args: right(logits, *args).to(logits.dtype).float()


@part("5.3")
def penalties_of_small_vocabularies(m):
    """Ids above 1000 are left alone."""
    right = m.penalize

    def penalize(logits, rows, ids, written, *wish):
        some = ids < 1000
        return right(logits, rows[some], ids[some], written[some], *wish)

    m.penalize = penalize


@part("5.3")
def penalty_of_zero_logits(m):
    """A logit of exactly 0 gets the factor added."""
    right = m.penalize

    def penalize(logits, rows, ids, written, repetition, *more):
        found = right(logits, rows, ids, written, repetition, *more)
        if bool((repetition == 1).all()):
            return found
        return torch.where(found == 0, -1.0, found)

    m.penalize = penalize


@part("5.3")
def negative_penalties_are_none(m):
    """Presence and frequency below 0 are taken for 0."""
    right = m.penalize

    def penalize(logits, rows, ids, written, repetition, presence, frequency):
        return right(logits, rows, ids, written, repetition, presence.clamp(0), frequency.clamp(0))

    m.penalize = penalize


@part("5.3")
def repetition_below_one_is_none(m):
    """A repetition penalty below 1 is taken for 1."""
    right = m.penalize

    def penalize(logits, rows, ids, written, repetition, *more):
        return right(logits, rows, ids, written, repetition.clamp(1), *more)

    m.penalize = penalize


@part("5.3")
def penalties_of_a_row_twice(m):
    """Only the first entry of each row counts."""
    right = m.penalize

    def penalize(logits, rows, ids, written, *wish):
        first = [int(r) not in rows[:n].tolist() for n, r in enumerate(rows)]
        some = torch.tensor(first, dtype=torch.bool)
        return right(logits, rows[some], ids[some], written[some], *wish)

    m.penalize = penalize


@part("5.5")
def log_in_the_dtype_of_the_logits(m):
    """16 bits come back as 16 bits."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        values, ids, tops = right(logits, chosen, top)
        return values.to(logits.dtype), ids, tops.to(logits.dtype)

    m.log_probabilities = log_probabilities


@part("5.5")
def log_computed_in_bfloat16(m):
    """The sum is taken in 16 bits."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        off = logits.logsumexp(-1).float() - logits.float().logsumexp(-1)
        values, ids, tops = right(logits, chosen, top)
        return values - off, ids, tops - off[:, None]

    m.log_probabilities = log_probabilities


@part("5.5")
def log_ids_are_int32(m):
    """int32 ids."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        values, ids, tops = right(logits, chosen, top)
        return values, ids.int(), tops

    m.log_probabilities = log_probabilities


@part("5.5")
def log_needs_int64(m):
    """A chosen id of int32 fails."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        if chosen.dtype != torch.int64:
            raise RuntimeError("gather(): Expected dtype int64 for index")
        return right(logits, chosen, top)

    m.log_probabilities = log_probabilities


@part("5.5")
def log_padded_to_top(m):
    """A top beyond V is filled up."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        values, ids, tops = right(logits, chosen, top)
        extra = top - ids.shape[1]
        pad = torch.nn.functional.pad
        return values, pad(ids, (0, extra), value=-1), pad(tops, (0, extra), value=-INF)

    m.log_probabilities = log_probabilities


@part("5.5")
def log_hidden_is_a_large_number(m):
    """-inf becomes -1e4, as JSON would have it."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        values, ids, tops = right(logits, chosen, top)
        return values.clamp(min=-1e4), ids, tops.clamp(min=-1e4)

    m.log_probabilities = log_probabilities


@part("5.5")
def log_of_no_favourites_is_one(m):
    """top = 0 gives one."""
    right = m.log_probabilities
    m.log_probabilities = lambda logits, chosen, top: right(logits, chosen, max(top, 1))


@part("5.5")
def log_chosen_of_the_first_row(m):
    """Every row reports the first row's chosen token."""
    right = m.log_probabilities

    def log_probabilities(logits, chosen, top):
        return right(logits, chosen[:1].expand(len(chosen)), top)

    m.log_probabilities = log_probabilities
