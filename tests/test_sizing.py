"""What chapter 01 computes, against what later chapters really make and what is published."""

import pytest
import torch

from solutions.kv_cache import KVCache
from solutions.loader import Config
from solutions.quantized import Format
from solutions.quantizer import quantize_weights
from solutions.sizing import kv_cache_bytes, weight_bytes
from tests.reference.arrays import tiny_config, tiny_weights

LLAMA_13B = {
    "vocab_size": 32000,
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
}


def stored(name: str, dtype: torch.dtype) -> dict:
    return {key: weight.to(dtype) for key, weight in tiny_weights(name).items()}


@pytest.mark.parametrize("name", ["tied", "untied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_plain_weights_have_the_bytes_that_were_computed(name, dtype):
    weights = stored(name, dtype)
    size = sum(weight.nbytes for weight in weights.values())
    assert weight_bytes(tiny_config(name), 8 * dtype.itemsize) == size


@pytest.mark.parametrize("name", ["tied", "untied"])
@pytest.mark.parametrize("kept", [torch.float32, torch.float16])
@pytest.mark.parametrize("format", [(8, None), (8, 32), (4, 32), (4, 7), (2, 16), (2, 5), (4, 500)])
def test_quantized_weights_have_the_bytes_that_were_computed(name, kept, format):
    found = quantize_weights(stored(name, torch.float32), Format(*format), kept)
    size = sum(weight.nbytes for weight in found.values())
    assert weight_bytes(tiny_config(name), *format, kept_bits=8 * kept.itemsize) == size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_cache_has_the_bytes_that_were_computed(dtype):
    config = tiny_config("tied")
    cache = KVCache(Config(**{**config, "eos_token_ids": ()}), 3, 17, dtype)
    assert kv_cache_bytes(config, 17, 3, 8 * dtype.itemsize) == cache.nbytes


def test_published_sizes():
    """26 GB become 7 GB; the 2 GB for 2,048 tokens are 1.7."""
    assert weight_bytes(LLAMA_13B) == 4 * 13_015_864_320
    assert 26.0e9 < weight_bytes(LLAMA_13B, 16) < 26.1e9
    assert 7.0e9 < weight_bytes(LLAMA_13B, 4) < 7.1e9
    assert 1.6e9 < kv_cache_bytes(LLAMA_13B, 2048) < 1.7e9
