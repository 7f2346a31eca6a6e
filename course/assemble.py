"""The only place that puts the layers together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from course.text import Text
from solutions import (
    backpressure,
    batcher,
    bodies,
    channel,
    chat,
    detokenizer,
    engine_thread,
    forward_pass,
    generate,
    greedy,
    kv_cache,
    lifecycle,
    loader,
    monitoring,
    quantized,
    quantizer,
    request,
    responses,
    results,
    sampler,
    stopping,
    streaming,
)

QUANTIZED = "quantized.safetensors"  # a folder that has it is run in these few bits

REFERENCE: dict[str, ModuleType] = {
    "loader": loader,
    "quantized": quantized,
    "quantizer": quantizer,
    "forward_pass": forward_pass,
    "kv_cache": kv_cache,
    "chat": chat,
    "greedy": greedy,
    "sampler": sampler,
    "stopping": stopping,
    "detokenizer": detokenizer,
    "generate": generate,
    "request": request,
    "batcher": batcher,
    "bodies": bodies,
    "responses": responses,
    "channel": channel,
    "engine_thread": engine_thread,
    "backpressure": backpressure,
    "results": results,
    "streaming": streaming,
    "lifecycle": lifecycle,
    "monitoring": monitoring,
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

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a conversation. ValueError when the model's tokenizer has no tokens for it."""
        try:
            return self.layers["chat"].chat_ids(messages, self.text.encode, self.text.special)
        except KeyError as missing:
            raise ValueError(f"messages need a model whose tokenizer has {missing}") from None

    def stream(self, continues: bool = False) -> detokenizer.Detokenizer:
        """Makes text of an answer's ids; continues: see Text.stream."""
        return self.text.stream(kind=self.layers["detokenizer"].Detokenizer, continues=continues)


def assemble(folder: Path, layers: Mapping[str, ModuleType] = REFERENCE) -> Engine:
    """Load a checkpoint folder, quantized or not, and put an engine together from these layers.

    Errors: FileNotFoundError or ValueError, naming the file and what is wrong.
    """
    config = layers["loader"].read_config(folder)
    weights = _load(folder, config, layers)
    model = layers["forward_pass"].Llama(config, weights, layers["quantized"].linear)
    return Engine(layers, config, model, Text(folder))


def _load(folder: Path, config: loader.Config, layers: Mapping[str, ModuleType]) -> dict:
    """The weights, quantized where the folder has a quantized file."""
    path = folder / QUANTIZED
    if not path.is_file():
        return layers["loader"].load_weights(folder, config)
    weights = layers["quantizer"].load_quantized(path)
    expected = layers["loader"].expected_tensors(config)
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    if wrong := sorted(name for name, _ in expected.items() ^ found.items()):
        raise ValueError(
            f"{path} does not fit config.json: {', '.join(dict.fromkeys(wrong))}. "
            "Quantize the model again."
        )
    return weights
