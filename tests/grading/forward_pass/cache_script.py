"""Steps for a KV cache, and what a right one holds after each of them.

The expected contents are kept in a plain dictionary, (layer, row, position) -> k and v [KV, D].
"""

import torch

from course.cases import Wrong, expect_equal, expect_tensor, randn
from tests.grading.forward_pass.driving import drive
from tests.grading.forward_pass.tolerances import F32
from tests.reference.arrays import tiny_config

SIZES = tiny_config("tied")
LAYERS, KV, DIM = (SIZES[n] for n in ("num_hidden_layers", "num_key_value_heads", "head_dim"))


def numbers(rng, positions, dtype=F32):
    """Random keys and values for a table of positions: [B, KV, T, D] each."""
    shape = (positions.shape[0], KV, positions.shape[1], DIM)
    return randn(rng, *shape, dtype=dtype), randn(rng, *shape, dtype=dtype)


class Script:
    """Steps for a cache, and what a right one holds after each of them."""

    def __init__(self, rows: int, max_length: int, dtype: str = "float32"):
        self.setting = ("tied", rows, max_length, dtype)
        self.steps, self.reads, self.held = [], {}, {}

    def do(self, *step):
        """A step whose answer does not matter."""
        self.steps.append(list(step))
        return self

    def write(self, rng, rows: list[int], positions, layers=range(LAYERS), dtype=F32):
        """Random keys and values at these positions, in each layer others."""
        positions = torch.as_tensor(positions)
        for layer in layers:
            k, v = numbers(rng, positions, dtype)
            self.do("write", layer, torch.tensor(rows), positions, k, v)
            for b, t in (positions >= 0).nonzero().tolist():
                place = layer, rows[b], int(positions[b, t])
                self.held[place] = k[b, :, t], v[b, :, t]
        return self

    def free(self, row: int):
        """Give a row back and forget what it held."""
        self.held = {place: kv for place, kv in self.held.items() if place[1] != row}
        return self.do("free", row)

    def read(self, *rows: int, layers=range(LAYERS)):
        """Read these rows, to be compared with what has been written so far."""
        for layer in layers:
            self.reads[len(self.steps)] = layer, rows, dict(self.held)
            self.do("read", layer, torch.tensor(rows))
        return self

    def run(self, learner) -> list:
        """All steps on the cache under test; every read compared."""
        answers = self.ask(learner)
        self.compare(answers)
        return answers

    def ask(self, learner) -> list:
        """The answers to all steps."""
        return drive(learner, "kv_session", *self.setting, self.steps)

    def compare(self, answers: list) -> None:
        """Every read with what had been written by then."""
        dtype = getattr(torch, self.setting[3])
        for index, (layer, rows, held) in self.reads.items():
            compare(answers[index], layer, rows, held, dtype)


def compare(answer, layer: int, rows, held: dict, dtype) -> None:
    """One read against the dictionary: positions, then k and v wherever there is a token."""
    k, v, positions = answer
    lengths = [max((p + 1 for _, r, p in held if r == row), default=0) for row in rows]
    longest = max(lengths)
    expected = [[p if p < length else -1 for p in range(longest)] for length in lengths]
    expected = torch.tensor(expected, dtype=torch.long).view(len(rows), longest)
    got = positions.tolist() if torch.is_tensor(positions) else positions
    expect_equal(got, expected.tolist(), f"read of rows {list(rows)}: positions")
    shape = (len(rows), KV, longest, DIM)
    for got, which in ((k, 0), (v, 1)):
        want, real = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=torch.bool)
        for b, row in enumerate(rows):
            for p in range(lengths[b]):
                if (layer, row, p) in held:
                    want[b, :, p], real[b, :, p] = held[layer, row, p][which].to(dtype), True
        what = f"read of rows {list(rows)} in layer {layer}: {'kv'[which]}"
        if got.shape == shape:
            if not got.masked_fill(real, 0).isfinite().all():
                raise Wrong(f"{what} is not finite where no token is, and 0 times NaN is NaN")
            got = got.where(real, 0)  # as long as it is finite, it does not matter
        expect_tensor(got, want, atol=0.0, what=what)


def answers_of(name: str, script: Script, answers: list) -> list:
    """The answers to the steps of that name."""
    return [a for a, step in zip(answers, script.steps, strict=True) if step[0] == name]
