"""`python -m course quantize --report`: every format beside the model as it is stored.

One table: size, error of the weights, error of the logits, perplexity, agreement, load time. The
text is chapters/03_quantizer/text.txt, which was written for this course.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from course import paths
from course.text import Text
from solutions.config import Config, read_config
from solutions.forward_pass import Llama
from solutions.loader import stored_tensors
from solutions.quality import agreement, noise_ratio, perplexity, relative_error
from solutions.quantized import Format, QuantizedTensor, linear
from solutions.quantizer import is_quantizable, load_quantized, quantize_weights, save_quantized

TEXT = paths.ROOT / "chapters" / "03_quantizer" / "text.txt"
WINDOW = 256  # tokens, where the model's context holds that many; they overlap by half
FORMATS = tuple(
    Format(*pair)
    for pair in ((8, None), (8, 32), (4, 32), (4, 64), (4, 128), (3, 32), (3, 64), (2, 32), (2, 64))
)
HEAD = "format", "MB", "weights", "noise", "logits", "perplexity", "agree", "load s"
NOTES = """
weights     mean relative error of the quantized matrices
noise       that error over what rounding ought to cost (step / sqrt(12)). Far under 1, marked *:
            these weights sit on that grid already, and the row says nothing about the format
logits      relative error of the logits on the first {window} tokens
perplexity  over {tokens} tokens of {text}, windows of {window}, stride {stride}
agree       share of these {window} positions with the same most probable token
load s      from the file to weights in memory; the file may be in the page cache"""


@dataclass(frozen=True)
class Row:
    """What one format costs."""

    name: str
    nbytes: int
    weights: float
    noise: float | None
    logits: float
    perplexity: float
    agreement: float
    seconds: float | None  # to load


def run(folder: Path, formats: tuple[Format, ...] = FORMATS, limit: int | None = None) -> int:
    """Measure and print, a row as soon as it is known; `limit` shortens the text to so many ids."""
    config, ids = read_config(folder), text_ids(folder)[:limit]
    stored, window = stored_tensors(folder, config), window_for(config)
    print(_line(HEAD))
    with tqdm(total=1 + len(formats), desc="measuring", unit="format", disable=None) as bar:
        for row in rows(config, stored, ids, formats):
            tqdm.write(_line(_cells(row)))
            bar.update()
    values = {"tokens": len(ids), "window": min(window, len(ids)), "text": TEXT.name}
    print(NOTES.format(**values, stride=window // 2))
    return 0


def window_for(config: Config) -> int:
    """Tokens in a window."""
    return min(WINDOW, config.max_position_embeddings)


def text_ids(folder: Path) -> Tensor:
    """The ids of the text. FileNotFoundError where a chapter folder is not whole."""
    if not TEXT.is_file():
        raise FileNotFoundError(f"{TEXT} is missing; take the repository's own copy of it")
    return torch.tensor(Text(folder).encode(TEXT.read_text(encoding="utf-8")))


def rows(config: Config, stored: Mapping[str, Tensor], ids: Tensor, formats: tuple[Format, ...]):
    """The row of the stored weights in float32, then one for each format."""
    window = window_for(config)
    reference = {name: tensor.float() for name, tensor in stored.items()}
    model = model_of(config, reference)
    logits = model(ids[:window])
    size = sum(tensor.nbytes for tensor in reference.values())
    score = perplexity(model, ids, window, window // 2)
    yield Row("float32", size, 0.0, None, 0.0, score, 1.0, None)
    for format in formats:
        weights = quantize_weights(stored, format)
        model = model_of(config, weights)
        found = model(ids[:window])
        yield Row(
            str(format),
            sum(weight.nbytes for weight in weights.values()),
            weight_error(stored, weights),
            mean([noise_ratio(w, format) for n, w in stored.items() if is_quantizable(n, w.shape)]),
            relative_error(logits, found),
            perplexity(model, ids, window, window // 2),
            agreement(logits, found),
            load_seconds(weights),
        )


def model_of(config: Config, weights: Mapping) -> Callable[[Tensor], Tensor]:
    """ids [T] -> logits [T, V] of the engine with these weights."""
    model = Llama(config, weights, linear)

    def logits_of(ids: Tensor) -> Tensor:
        return model.forward(ids[None], torch.arange(len(ids))[None], every_position=True)[0]

    return logits_of


def weight_error(stored: Mapping[str, Tensor], weights: Mapping) -> float:
    """The mean relative error of the weights that are quantized."""
    return mean(
        [
            relative_error(stored[name], weight.dequantize())
            for name, weight in weights.items()
            if isinstance(weight, QuantizedTensor)
        ]
    )


def load_seconds(weights: Mapping) -> float:
    """From a file of these weights to numbers in memory, the middle one of three times."""
    with tempfile.TemporaryDirectory(dir=paths.MODELS, ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "quantized.safetensors"
        save_quantized(path, weights)
        return sorted(_load_once(path) for _ in range(3))[1]


def _load_once(path: Path) -> float:
    """Seconds to map the file and touch every page of it."""
    began = time.perf_counter()
    for weight in load_quantized(path).values():
        quantized = isinstance(weight, QuantizedTensor)
        for part in (weight.data, weight.scale, weight.minimum) if quantized else (weight,):
            if part is not None:
                part.flatten().view(torch.uint8)[::4096].sum()
    return time.perf_counter() - began


def mean(values: list[float]) -> float:
    """Their mean; 0.0 of none."""
    return sum(values) / len(values) if values else 0.0


def _cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    flattered = row.noise is not None and row.noise < 0.5
    noise = "" if row.noise is None else f"{row.noise:.2f}{'*' if flattered else ' '}"
    seconds = "" if row.seconds is None else f"{row.seconds:.2f}"
    return (
        row.name, f"{row.nbytes / 1e6:.0f}", f"{row.weights:.4f}", noise, f"{row.logits:.4f}",
        f"{row.perplexity:.2f}", f"{row.agreement:.1%}", seconds,
    )  # fmt: skip


def _line(cells: tuple[str, ...]) -> str:
    """A line of the table."""
    widths = (22, 6, 9, 7, 9, 12, 8, 8)
    return f"{cells[0]:{widths[0]}}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)
    )
