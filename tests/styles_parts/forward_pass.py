"""Chapter 04 with one part written otherwise."""

import itertools

import torch
import torch.nn.functional as F

from tests.parts import part


@part("4.1")
def norm_of_torch(m):
    """torch has the function."""
    m.rms_norm = lambda x, weight, eps: F.rms_norm(x, (x.shape[-1],), weight, eps)


@part("4.2")
def rope_as_complex_numbers(m):
    """Pairs as complex numbers, times numbers of length 1."""

    def rope_tables(positions, head_dim, theta):
        if head_dim % 2:
            raise ValueError("odd")
        speeds = 1.0 / theta ** (torch.arange(0, head_dim, 2) / head_dim)
        turns = torch.polar(torch.ones(()), positions.unsqueeze(-1) * speeds)
        return turns.real, turns.imag

    def apply_rope(x, cos, sin):
        half = x.shape[-1] // 2
        pairs = torch.complex(x[..., :half].float(), x[..., half:].float())
        turned = pairs * torch.complex(cos, sin).unsqueeze(1)
        return torch.cat((turned.real, turned.imag), -1).type_as(x)

    m.rope_tables, m.apply_rope = rope_tables, apply_rope


@part("4.3")
def attention_of_torch(m):
    """torch has the function; queries that see nothing are set to zero afterwards."""

    def attention(q, k, v, q_positions, k_positions):
        if q.shape[1] % k.shape[1]:
            raise ValueError("heads")
        visible = (k_positions[:, None] <= q_positions[..., None]) & (k_positions[:, None] >= 0)
        visible = visible[:, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)
        return torch.where(visible.any(-1, keepdim=True), out, 0.0)

    m.attention = attention


@part("4.3")
def attention_all_in_16_bits(m):
    """einsum over groups, and nothing is ever widened to float32."""

    def attention(q, k, v, q_positions, k_positions):
        if q.shape[1] % k.shape[1]:
            raise ValueError("heads")
        grouped = q.unflatten(1, (k.shape[1], -1)) * q.shape[-1] ** -0.5
        scores = torch.einsum("bngtd,bnsd->bngts", grouped, k)
        visible = (k_positions[:, None] <= q_positions[..., None]) & (k_positions[:, None] >= 0)
        scores.masked_fill_(~visible[:, None, None], float("-inf"))
        weights = scores.softmax(-1).nan_to_num(0.0)
        return torch.einsum("bngts,bnsd->bngtd", weights, v).flatten(1, 2)

    m.attention = attention


@part("4.5")
def cache_that_answers_otherwise(m):
    """Counts are tensors, read gives a list, write gives self, a message has commas in numbers."""
    write, read, reserve = m.KVCache.write, m.KVCache.read, m.KVCache.reserve

    class RowFull(m.CacheFull):
        def __str__(self):
            return "{:,} tokens, but {:,} fit".format(*self.args)

    def write_self(self, *args):
        write(self, *args)
        return self

    def reserve_or_say(self, row, length):
        if length > self.max_length and row in range(self.rows):
            raise RowFull(length, self.max_length)
        reserve(self, row, length)

    m.KVCache.used_tokens = property(lambda self: self.reserved.sum())
    m.KVCache.read = lambda self, *args: list(read(self, *args))
    m.KVCache.write, m.KVCache.reserve = write_self, reserve_or_say


@part("4.6")
def llama_as_a_module(m):
    """Llama is an nn.Module, and undefined logits are NaN."""
    right = m.Llama

    class Llama(torch.nn.Module):
        attend, heads, norm, mlp_weights = right.attend, right.heads, right.norm, right.mlp_weights

        def __init__(self, *args, **kwargs):
            super().__init__()
            vars(self).update(vars(right(*args, **kwargs)))

        def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
            logits = right.forward(self, tokens, positions, cache, rows, every_position)
            padded = (positions < 0)[..., None]
            return logits.masked_fill(padded, float("nan")) if every_position else logits

    m.Llama = Llama


@part("4.7")
def chat_by_chain(m):
    """All roles are checked first, then the parts are chained."""

    def chat_ids(messages, encode, special):
        if len(messages) == 0:
            raise ValueError("empty")
        first = [] if messages[0]["role"] == "system" else [m.DEFAULT_SYSTEM]
        pairs = [("system", text) for text in first]
        pairs += [(one["role"], one["content"]) for one in messages]
        wrong = [role for role, _ in pairs if role not in m.ROLES]
        if wrong:
            raise ValueError(wrong)
        start, end = special["<|im_start|>"], special["<|im_end|>"]
        turns = ([start, *encode("\n".join(pair)), end, *encode("\n")] for pair in pairs)
        return list(itertools.chain(*turns, [start], encode("assistant\n")))

    m.chat_ids = chat_ids


@part("4.8")
def greedy_with_all_logits(m):
    """Rows are named, all logits are asked for, and room is reserved in two steps."""
    right = m.generate_greedy

    def most_probable(model, new_ids, start, cache):
        tokens = torch.tensor(new_ids).unsqueeze(0)
        positions = torch.arange(len(new_ids)).add(start).unsqueeze(0)
        rows = torch.tensor([0])
        logits = model.forward(tokens, positions, cache=cache, rows=rows, every_position=True)
        return logits[0, -1].argmax().item()

    def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
        m.room_for(model.config, prompt, max_new_tokens, cache)
        if cache is not None:
            cache.reserve(0, len(prompt))
        return right(model, prompt, max_new_tokens, end_ids, cache, on_token)

    m._most_probable, m.generate_greedy = most_probable, generate_greedy
