"""Chapter 04 by someone who thinks in numpy and loops: round trips, dictionaries, no batches."""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from solutions.loader import Config

ROLES = ("system", "user", "assistant")
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def rms_norm(x, weight, eps):
    array = x.float().numpy()
    rows = array.reshape(-1, array.shape[-1])
    out = np.empty_like(rows)
    for index, row in enumerate(rows):
        out[index] = row / np.sqrt(np.mean(row * row) + np.float32(eps)) * weight.float().numpy()
    return torch.from_numpy(out.reshape(array.shape)).to(x.dtype)


def rope_tables(positions, head_dim, theta):
    if head_dim & 1:
        raise ValueError(f"{head_dim} is odd")
    angles = np.zeros((*positions.shape, head_dim // 2))
    for (b, t), position in np.ndenumerate(positions.numpy()):
        for i in range(head_dim // 2):
            angles[b, t, i] = position * theta ** (-2 * i / head_dim)
    angles = torch.from_numpy(angles)
    return torch.cos(angles).float(), torch.sin(angles).float()


def apply_rope(x, cos, sin):
    array, c, s = x.float().numpy(), cos.float().numpy(), sin.float().numpy()
    out, half = np.empty_like(array), array.shape[-1] // 2
    for h in range(array.shape[1]):
        for i in range(half):
            a, b = array[:, h, :, i], array[:, h, :, i + half]
            out[:, h, :, i] = a * c[:, :, i] - b * s[:, :, i]
            out[:, h, :, i + half] = b * c[:, :, i] + a * s[:, :, i]
    return torch.from_numpy(out).to(x.dtype)


def attention(q, k, v, q_positions, k_positions):
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads % kv_heads:
        raise ValueError(f"{heads} heads and {kv_heads}")
    queries, keys, values = (t.float().numpy() for t in (q, k, v))
    out = np.zeros(q.shape, dtype=np.float32)
    for b in range(q.shape[0]):
        seen = k_positions[b].numpy()
        for t, position in enumerate(q_positions[b].tolist()):
            columns = np.flatnonzero((seen >= 0) & (seen <= position))
            if len(columns) == 0:
                continue
            for h in range(heads):
                shared = h * kv_heads // heads
                scores = keys[b, shared, columns] @ queries[b, h, t] / math.sqrt(q.shape[3])
                weights = np.exp(scores - scores.max())
                out[b, h, t] = (weights / weights.sum()) @ values[b, shared, columns]
    return torch.from_numpy(out).to(v.dtype)


def feed_forward(x, gate, up, down, linear=F.linear):
    z = linear(x, gate)
    z = z / (1 + torch.exp(-z))
    return linear(z.mul(linear(x, up)), down)


class CacheFull(RuntimeError):
    pass


class KVCache:
    """A list with one dictionary a row: (layer, position) -> key and value."""

    def __init__(self, config, rows, max_length, dtype=torch.float32, device="cpu"):
        if rows < 1 or max_length < 1:
            raise ValueError("a KV cache needs a row and a token")
        self.config, self.rows, self.max_length, self.dtype = config, rows, max_length, dtype
        self.tokens = [{} for _ in range(rows)]
        self.reserved = np.zeros(rows, dtype=np.int64)

    @property
    def nbytes(self):
        item = torch.empty(0, dtype=self.dtype).element_size()
        sizes = self.config.num_hidden_layers * self.config.num_key_value_heads
        return 2 * self.total_tokens * sizes * self.config.head_dim * item

    @property
    def total_tokens(self):
        return self.rows * self.max_length

    @property
    def used_tokens(self):
        return int(self.reserved.sum())

    @property
    def free_tokens(self):
        return self.total_tokens - self.used_tokens

    def reserve(self, row, length):
        if row < 0 or row >= self.rows:
            raise IndexError(row)
        if length > self.max_length:
            raise CacheFull(f"{length} is more than {self.max_length}")
        self.reserved[row] = max(self.reserved[row], length)

    def write(self, layer, rows, positions, k, v):
        todo = []
        for b, row in enumerate(rows.tolist()):
            if row < 0 or row >= self.rows:
                raise IndexError(f"row {row} of {self.rows}")
            for t, position in enumerate(positions[b].tolist()):
                if position >= self.reserved[row]:
                    raise CacheFull(f"position {position} in row {row}")
                if position != -1:
                    todo.append((row, position, k[b, :, t].clone(), v[b, :, t].clone()))
        for row, position, key, value in todo:
            self.tokens[row][layer, position] = (key.to(self.dtype), value.to(self.dtype))

    def read(self, layer, rows):
        lengths = [max((p + 1 for _, p in self.tokens[row]), default=0) for row in rows.tolist()]
        shape = (len(lengths), self.config.num_key_value_heads, max(lengths), self.config.head_dim)
        k, v = torch.zeros(shape, dtype=self.dtype), torch.zeros(shape, dtype=self.dtype)
        positions = torch.full((len(lengths), max(lengths)), -1)
        for b, row in enumerate(rows.tolist()):
            positions[b, : lengths[b]] = torch.arange(lengths[b])
            for (where, p), (key, value) in self.tokens[row].items():
                if where == layer:
                    k[b, :, p], v[b, :, p] = key, value
        return k, v, positions

    def free(self, row):
        if row < 0 or row >= self.rows:
            raise IndexError(row)
        self.tokens[row], self.reserved[row] = {}, 0


def check_inputs(config, tokens, positions):
    if tokens.ndim != 2 or tokens.shape != positions.shape or tokens.numel() == 0:
        raise ValueError(f"shapes {list(tokens.shape)} and {list(positions.shape)}")
    for row, (ids, places) in enumerate(zip(tokens.tolist(), positions.tolist(), strict=True)):
        real = [(i, p) for i, p in zip(ids, places, strict=True) if p >= 0]
        if not real:
            raise ValueError(f"sequence {row} is all padding")
        for token, place in real:
            if token not in range(config.vocab_size):
                raise ValueError(f"token {token} of {config.vocab_size}")
            if place >= config.max_position_embeddings:
                raise ValueError(f"position {place} of {config.max_position_embeddings}")


class Llama:
    def __init__(self, config: Config, weights, linear=F.linear):
        self.config, self.weights, self.linear = config, weights, linear
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.device = self.embedding.device

    def forward(self, tokens, positions, cache=None, rows=None, every_position=False):
        """One sequence after the other; each without its padding."""
        check_inputs(self.config, tokens, positions)
        rows = list(range(len(tokens))) if rows is None else rows.tolist()
        out = torch.zeros(*tokens.shape, self.config.vocab_size, dtype=self.embedding.dtype)
        last = []
        for b, row in enumerate(rows):
            real = (positions[b] >= 0).nonzero().flatten()
            args = tokens[b, real][None], positions[b, real][None], cache, torch.tensor([row])
            x = self.norm(self.sequence(*args), "model.norm.weight")
            if every_position:
                out[b, real] = self.linear(x, self.head)
            else:
                last.append(self.linear(x[-1], self.head))
        return out if every_position else torch.stack(last)

    def sequence(self, tokens, positions, cache, rows):
        rotation = rope_tables(positions, self.config.head_dim, self.config.rope_theta)
        x = self.embedding[tokens]
        for i in range(self.config.num_hidden_layers):
            name = f"model.layers.{i}."
            y = self.norm(x, name + "input_layernorm.weight")
            x = x + self.attend(i, y, positions, rotation, cache, rows)
            y = self.norm(x, name + "post_attention_layernorm.weight")
            x = x + feed_forward(y, *self.mlp_weights(i), self.linear)
        return x[0]

    def attend(self, layer, x, positions, rotation, cache, rows):
        q, k, v = [self.heads(layer, name, x) for name in ("q_proj", "k_proj", "v_proj")]
        q, k, seen = apply_rope(q, *rotation), apply_rope(k, *rotation), positions
        if cache is not None:
            cache.write(layer, rows, positions, k, v)
            k, v, seen = cache.read(layer, rows)
        mixed = attention(q, k, v, positions, seen).float().numpy()
        joined = np.concatenate([mixed[:, h] for h in range(mixed.shape[1])], axis=-1)
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        return self.linear(torch.from_numpy(joined).to(x.dtype), self.weights[name])

    def heads(self, layer, name, x):
        y = self.linear(x, self.weights[f"model.layers.{layer}.self_attn.{name}.weight"])
        return y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def norm(self, x, name):
        return rms_norm(x, self.weights[name], self.config.rms_norm_eps)

    def mlp_weights(self, layer):
        name = f"model.layers.{layer}.mlp."
        return tuple(self.weights[f"{name}{part}_proj.weight"] for part in ("gate", "up", "down"))


def chat_ids(messages, encode, special):
    if not messages:
        raise ValueError("no messages")
    turns = [(m["role"], m["content"]) for m in messages]
    if turns[0][0] != "system":
        turns.insert(0, ("system", DEFAULT_SYSTEM))
    for role, _ in turns:
        if role not in ROLES:
            raise ValueError(f"{role} is not a role")
    start, end = special["<|im_start|>"], special["<|im_end|>"]
    parts = [[start] + encode("\n".join(turn)) + [end] + encode("\n") for turn in turns]
    return sum(parts, []) + [start] + encode("assistant\n")


@dataclass(frozen=True)
class Generation:
    ids: list[int]
    finish_reason: str


def room_for(config, prompt, max_new_tokens, cache):
    sizes = [config.max_position_embeddings] + ([cache.max_length] if cache is not None else [])
    if not len(prompt):
        raise ValueError("no prompt")
    if max_new_tokens <= 0:
        raise ValueError("max_new_tokens must be positive")
    if min(sizes) - len(prompt) < 1:
        raise ValueError(f"{len(prompt)} tokens, but a context of {min(sizes)}")
    return min(max_new_tokens, min(sizes) - len(prompt))


def generate_greedy(model, prompt, max_new_tokens, end_ids, cache=None, on_token=None):
    room = room_for(model.config, prompt, max_new_tokens, cache)
    ids, reason = list(prompt), "length"
    if cache is not None:
        cache.reserve(row=0, length=len(prompt) + room)
    try:
        for step in range(room):
            first = len(ids) - 1 if step and cache is not None else 0
            tokens = torch.tensor(ids[first:]).reshape(1, -1)
            positions = torch.tensor(range(first, len(ids))).reshape(1, -1)
            logits = model.forward(tokens=tokens, positions=positions, cache=cache)
            token = int(np.argmax(logits.numpy()[0]))
            if token in end_ids:
                reason = "stop"
                break
            ids.append(token)
            if on_token is not None:
                on_token(token)
    finally:
        if cache is not None:
            cache.free(0)
    return Generation(ids[len(prompt) :], reason)
