"""4.5 KVCache: what a refused call leaves behind, and places that nobody has written."""

import torch

from tests.parts import part


@part("4.5")
def far_rows_freed_in_silence(m):
    """free looks only at the first row that is not there."""
    right = m.KVCache.free
    m.KVCache.free = lambda self, row: right(self, row) if row <= self.rows else None


@part("4.5")
def refused_reserve_drops_the_room(m):
    """The room is set to zero before the new length is looked at."""
    right = m.KVCache.reserve

    def reserve(self, row, length):
        if row == 0 and length > self.max_length:
            self.reserved[row] = 0
        right(self, row, length)

    m.KVCache.reserve = reserve


@part("4.5")
def asking_for_less_truncates(m):
    """The tokens beyond the length that is asked for are forgotten."""
    right = m.KVCache.reserve

    def reserve(self, row, length):
        right(self, row, length)
        self.lengths[row] = min(length, int(self.lengths[row]))

    m.KVCache.reserve = reserve


@part("4.5")
def refused_write_takes_the_room(m):
    """A write reserves what it lacks before it is refused."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        try:
            right(self, layer, rows, positions, k, v)
        except m.CacheFull:
            self.reserved[rows] = self.max_length
            raise

    m.KVCache.write = write


@part("4.5")
def room_checked_in_layer_0(m):
    """The other layers are written without a look at the room."""
    right = m.KVCache.write

    def write(self, layer, *args):
        kept = self.reserved
        self.reserved = torch.full_like(kept, self.max_length) if layer else kept
        try:
            right(self, layer, *args)
        finally:
            self.reserved = kept

    m.KVCache.write = write


@part("4.5")
def rows_checked_in_layer_0(m):
    """In the other layers row -1 is the last one."""
    right = m.KVCache.write

    def write(self, layer, rows, *args):
        right(self, layer, rows % self.rows if layer else rows, *args)

    m.KVCache.write = write


@part("4.5")
def rows_of_padding_unchecked(m):
    """Sequences of nothing but padding are left out before the rows are checked."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        real = (positions >= 0).any(-1)
        if real.any():
            right(self, layer, rows[real], positions[real], k[real], v[real])

    m.KVCache.write = write


@part("4.5")
def float32_takes_float32_only(m):
    """Keys in 16 bits do not go into a float32 cache."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        if self.keys.dtype == torch.float32 != k.dtype:
            raise RuntimeError("dtypes do not match")
        right(self, layer, rows, positions, k, v)

    m.KVCache.write = write


@part("4.5")
def memory_not_initialised(m):
    """torch.empty holds whatever was there, and now and then that is NaN."""
    right = m.KVCache.__init__

    def init(self, *args, **kwargs):
        right(self, *args, **kwargs)
        self.keys, self.values = torch.empty_like(self.keys), torch.empty_like(self.values)

    m.KVCache.__init__ = init


@part("4.5")
def places_emptied_with_nan(m):
    """Places that hold no token are read as NaN."""
    right = m.KVCache.read

    def read(self, layer, rows):
        k, v, positions = right(self, layer, rows)
        empty = (positions < 0)[:, None, :, None]
        return *(t.masked_fill(empty, float("nan")) for t in (k, v)), positions

    m.KVCache.read = read
