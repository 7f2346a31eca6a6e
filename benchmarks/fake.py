"""A model that costs nothing, so that what remains of a step is the batcher's own work.

It has no weights and its cache holds four numbers a token. Ids go from 0 to 15; after the id t
comes t + 1, and after 15 comes 1.
"""

import torch
from torch import Tensor

from solutions.config import Config
from solutions.kv_cache import KVCache

VOCABULARY = 16
CONTEXT = 4096
CONFIG = Config(
    vocab_size=VOCABULARY,
    hidden_size=2,
    intermediate_size=1,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=2,
    max_position_embeddings=CONTEXT,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    bos_token_id=None,
    eos_token_ids=(),
)


class FakeModel:
    """What the batcher wants of a Llama: config, device and forward."""

    def __init__(self):
        self.config, self.device = CONFIG, torch.device("cpu")
        following = torch.arange(1, VOCABULARY + 1).where(torch.arange(VOCABULARY) < 15, 1)
        self.table = torch.eye(VOCABULARY)[following]  # [V, V]: the logits after each id

    def forward(
        self, tokens: Tensor, positions: Tensor, cache=None, rows: Tensor | None = None
    ) -> Tensor:
        """Logits [B, V] after the last real token of each of tokens [B, T]; the cache is left."""
        last = positions.argmax(-1, keepdim=True)  # padding stands at position -1
        return self.table[tokens.gather(1, last)[:, 0]]


def small_cache(rows: int, max_length: int) -> KVCache:
    """A KV cache that counts tokens like any other, and holds next to nothing."""
    return KVCache(CONFIG, rows, max_length)
