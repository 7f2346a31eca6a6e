"""The only place that puts the layers together."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course.text import Text
from solutions import chat, forward_pass, greedy, kv_cache, loader

REFERENCE: dict[str, ModuleType] = {
    "loader": loader,
    "forward_pass": forward_pass,
    "kv_cache": kv_cache,
    "chat": chat,
    "greedy": greedy,
}


@dataclass(frozen=True)
class Engine:
    """A loaded model with the layers that run it."""

    layers: Mapping[str, ModuleType]
    config: loader.Config
    model: forward_pass.Llama
    text: Text

    def new_cache(self, rows: int, max_length: int) -> kv_cache.KVCache:
        """A KV cache that fits the model's shape, dtype and device."""
        embedding = self.model.embedding
        return self.layers["kv_cache"].KVCache(
            self.config, rows, max_length, embedding.dtype, embedding.device
        )


def assemble(folder: Path, layers: Mapping[str, ModuleType] = REFERENCE) -> Engine:
    """Load a checkpoint folder and put an engine together from these layers."""
    config = layers["loader"].read_config(folder)
    weights = layers["loader"].load_weights(folder, config)
    return Engine(layers, config, layers["forward_pass"].Llama(config, weights), Text(folder))
