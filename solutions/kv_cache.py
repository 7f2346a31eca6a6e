"""Chapter 04: what the model remembers, so that the next token costs one token's work.

Shapes: B sequences, T new tokens each, S keys to look at, KV key/value heads, D numbers a head.
"""

import torch
from torch import Tensor

from solutions.config import Config


class CacheFull(RuntimeError):
    """More room was asked of a KV cache than it has."""


class KVCache:
    """Keys and values of every token seen so far: one preallocated stretch of memory a row.

    A row belongs to one sequence. Its life: `reserve` room, `write` tokens at their positions,
    `read` all of them back, `free`. Chapter 10 puts pages behind the same five names.

    Args:
        config: of the model; gives the layers, key/value heads and head size.
        rows: how many sequences fit at once.
        max_length: tokens that one row can hold.
        dtype, device: of the stored keys and values.
    """

    def __init__(
        self,
        config: Config,
        rows: int,
        max_length: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        if rows < 1 or max_length < 1:
            raise ValueError(f"a KV cache needs a row and a token, not {rows} x {max_length}")
        shape = (
            config.num_hidden_layers,
            rows,
            config.num_key_value_heads,
            max_length,
            config.head_dim,
        )
        self.rows, self.max_length = rows, max_length
        # [layer, row, KV, slot, D]; zeros, because attention wants finite numbers everywhere
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.reserved = torch.zeros(rows, dtype=torch.long, device=device)  # tokens of room
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)  # tokens written

    @property
    def nbytes(self) -> int:
        """Bytes held, used or not."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def total_tokens(self) -> int:
        """Tokens of room in all rows; used_tokens + free_tokens is always this."""
        return self.rows * self.max_length

    @property
    def used_tokens(self) -> int:
        """Tokens of room that are reserved."""
        return int(self.reserved.sum())

    @property
    def free_tokens(self) -> int:
        """Tokens of room that nobody has reserved."""
        return self.total_tokens - self.used_tokens

    def reserve(self, row: int, length: int) -> None:
        """Make sure that positions 0 to length - 1 of a row may be written.

        Asking again for more grows the reservation; asking for less changes nothing. Afterwards
        used_tokens has grown by what was added.

        Errors: IndexError when there is no such row (0 to rows - 1); CacheFull, naming the length
        asked for and max_length, when the row cannot hold it. On an error nothing has changed.
        """
        # exercise 4.5
        self._check_rows([row])
        if length > self.max_length:
            raise CacheFull(f"{length} tokens asked for, but a row holds {self.max_length}")
        self.reserved[row] = max(length, int(self.reserved[row]))

    def write(self, layer: int, rows: Tensor, positions: Tensor, k: Tensor, v: Tensor) -> None:
        """Store the keys and values of new tokens, each at its own position, in the cache's dtype.

        A position may be written again: the newer value replaces the older. A row has one length,
        whichever layer is written: the highest position since it was freed, plus 1.

        Args:
            layer: which layer's keys and values these are.
            rows: [B] integers, the row of each sequence, no two alike.
            positions: [B, T] integers; nothing is stored where it is -1.
            k, v: [B, KV, T, D], of any floating dtype.

        Errors: IndexError when there is no such row; CacheFull when a position lies outside what
        its row has reserved. Nothing has been stored then.
        """
        # exercise 4.5
        self._check_rows(rows.tolist())
        batch, column = (positions >= 0).nonzero(as_tuple=True)  # N real tokens
        row, slot = rows[batch], positions[batch, column].long()
        if bool((slot >= self.reserved[row]).any()):
            raise CacheFull(
                f"position {int(slot.max())} written, but the rows have reserved "
                f"{self.reserved[rows].tolist()} tokens: call reserve first"
            )
        self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)  # [N, KV, D]
        self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
        self.lengths.scatter_reduce_(0, row, slot + 1, "amax")

    def read(self, layer: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All that the rows hold, up to the longest of them.

        Args:
            layer: which layer.
            rows: [B] integers, at least one.

        Returns:
            (k, v, positions): k and v [B, KV, S, D], where S is the largest length among these
            rows, finite also where nothing was written, as attention wants it; and positions
            [B, S]: 0, 1, 2, ... up to each row's own length, then -1.
            k and v may be views of the cache; do not change them.
        """
        # exercise 4.5
        lengths = self.lengths[rows]
        slots = torch.arange(int(lengths.max()), device=lengths.device)
        positions = torch.where(slots < lengths[:, None], slots, -1)
        chosen = _as_slice(rows)  # where rows are missing between, what is chosen is a copy:
        k = self.keys[layer][:, :, : len(slots)][chosen]  # of S tokens a row, not of all its room
        v = self.values[layer][:, :, : len(slots)][chosen]
        return k, v, positions

    def free(self, row: int) -> None:
        """Give a row's room back; what it held is forgotten. Freeing a free row does nothing.

        Errors: IndexError when there is no such row.
        """
        # exercise 4.5
        self._check_rows([row])
        self.reserved[row] = 0
        self.lengths[row] = 0

    def _check_rows(self, rows: list[int]) -> None:
        """IndexError for a row that this cache does not have."""
        for row in rows:
            if not 0 <= row < self.rows:
                raise IndexError(f"no row {row}: this cache has rows 0 to {self.rows - 1}")


def _as_slice(rows: Tensor) -> slice | Tensor:
    """Rows that follow each other as a slice, which reads them as a view instead of a copy."""
    first = int(rows[0])
    following = torch.arange(first, first + len(rows), device=rows.device)
    return slice(first, first + len(rows)) if torch.equal(rows, following) else rows
