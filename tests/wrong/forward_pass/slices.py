"""4.5: rows or positions taken for a stretch because their ends look like one."""

import torch

from tests.parts import part


@part("4.5")
def rows_sliced_by_first_and_last(m):
    """Rows 0, 2, 1, 3 are read as 0 to 3."""

    def as_slice(rows):
        first, last = int(rows[0]), int(rows[-1])
        return slice(first, last + 1) if last - first == len(rows) - 1 else rows

    m._as_slice = as_slice


@part("4.5")
def rows_sliced_from_zero(m):
    """Rows 1 and 2 are read as rows 0 and 1."""
    right = m._as_slice

    def as_slice(rows):
        found = right(rows)
        return slice(0, len(rows)) if isinstance(found, slice) and len(rows) > 1 else found

    m._as_slice = as_slice


@part("4.5")
def positions_sliced_by_first_and_last(m):
    """Positions 0, 2, 1, 3 are written as 0 to 3."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        count = positions.shape[1]
        if count > 1 and bool((positions[:, -1] - positions[:, 0] == count - 1).all()):
            positions = positions[:, :1] + torch.arange(count)
        right(self, layer, rows, positions, k, v)

    m.KVCache.write = write
