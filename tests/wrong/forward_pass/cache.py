"""4.5 KVCache."""

import torch

from tests.parts import part


def real_tokens(rows, positions):
    """batch, column, row and slot of every token that is not padding."""
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    return batch, column, rows[batch], positions[batch, column]


def replace_write(m, refused=None, lengths=None) -> None:
    """A write with another test of room, or another way of counting lengths."""

    def write(self, layer, rows, positions, k, v):
        self._check_rows(rows.tolist())
        batch, column, row, slot = real_tokens(rows, positions)
        right = bool((slot >= self.reserved[row]).any())
        if refused(self, rows, row, slot) if refused else right:
            raise m.CacheFull("not reserved")
        self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
        self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
        if lengths:
            lengths(self, layer, row, slot)
        else:
            self.lengths.scatter_reduce_(0, row, slot + 1, "amax")

    m.KVCache.write = write


@part("4.5")
def room_of_the_largest(m):
    """The room of all rows is that of the row which has reserved most."""
    replace_write(m, lambda self, rows, row, slot: bool((slot >= self.reserved[rows].max()).any()))


@part("4.5")
def room_of_the_smallest(m):
    """The room of all rows is that of the row which has reserved least."""
    replace_write(m, lambda self, rows, row, slot: bool((slot >= self.reserved[rows].min()).any()))


@part("4.5")
def room_of_the_highest_position_only(m):
    """Only the highest position of a write is compared with the room of its row."""

    def refused(self, rows, row, slot):
        if not len(slot):
            return False
        highest = int(slot.argmax())
        return bool(slot[highest] >= self.reserved[row[highest]])

    replace_write(m, refused)


@part("4.5")
def length_set_by_the_first_layer(m):
    """Only layer 0 counts."""

    def lengths(self, layer, row, slot):
        if layer == 0:
            self.lengths.scatter_reduce_(0, row, slot + 1, "amax")

    replace_write(m, lengths=lengths)


@part("4.5")
def length_set_by_the_last_layer(m):
    """Only the last layer counts: the layers before it read too little."""

    def lengths(self, layer, row, slot):
        if layer == len(self.keys) - 1:
            self.lengths.scatter_reduce_(0, row, slot + 1, "amax")

    replace_write(m, lengths=lengths)


@part("4.5")
def length_of_each_layer(m):
    """Every layer has a length of its own."""
    read, free = m.KVCache.read, m.KVCache.free

    def own(self):
        if not hasattr(self, "own"):
            self.own = torch.zeros(len(self.keys), self.rows, dtype=torch.long)
        return self.own

    def read_own(self, layer, rows):
        self.lengths = own(self)[layer]
        return read(self, layer, rows)

    def free_own(self, row):
        free(self, row)
        own(self)[:, row] = 0

    replace_write(
        m,
        lengths=lambda self, layer, row, slot: own(self)[layer].scatter_reduce_(
            0, row, slot + 1, "amax"
        ),
    )
    m.KVCache.read, m.KVCache.free = read_own, free_own


@part("4.5")
def length_counts_positions(m):
    """The length is the number of different positions: a gap makes it too short."""
    free = m.KVCache.free

    def lengths(self, layer, row, slot):
        self.seen = getattr(self, "seen", {})
        for r, s in zip(row.tolist(), slot.tolist(), strict=True):
            self.seen.setdefault(r, set()).add(s)
            self.lengths[r] = len(self.seen[r])

    def forget(self, row):
        free(self, row)
        getattr(self, "seen", {}).pop(row, None)

    replace_write(m, lengths=lengths)
    m.KVCache.free = forget


@part("4.5")
def k_and_v_kept_by_reference(m):
    """Nothing is copied until it is read: what the caller does to k and v reaches the cache."""
    write, read = m.KVCache.write, m.KVCache.read

    def later(self, layer, rows, positions, k, v):
        write(self, layer, rows, positions, k, v)
        self.waiting = [*getattr(self, "waiting", []), (layer, rows, positions, k, v)]

    def read_now(self, layer, rows):
        for args in getattr(self, "waiting", []):
            write(self, *args)
        return read(self, layer, rows)

    m.KVCache.write, m.KVCache.read = later, read_now


def after_write(m, spoil) -> None:
    """write, and then something that it should not do to its arguments."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        right(self, layer, rows, positions, k, v)
        spoil(positions, k, v)

    m.KVCache.write = write


@part("4.5")
def write_changes_positions(m):
    """Padding in the caller's positions becomes 0."""
    after_write(m, lambda positions, k, v: positions.clamp_(min=0))


@part("4.5")
def write_changes_k(m):
    """The caller's k and v are zeros afterwards."""
    after_write(m, lambda positions, k, v: (k.zero_(), v.zero_()))


@part("4.5")
def write_of_padding_fails(m):
    """A write of nothing but padding is an error."""
    after_write(m, lambda positions, k, v: positions[positions >= 0].max())


@part("4.5")
def rows_taken_modulo(m):
    """Row 7 of 3, and row -1, are quietly another row."""
    right = m.KVCache.write
    m.KVCache.write = lambda self, layer, rows, *args: right(self, layer, rows % self.rows, *args)


@part("4.5")
def last_row_for_minus_one(m):
    """Row -1 is not refused: the first thing it does is to store in the last row."""
    right = m.KVCache.write

    def write(self, layer, rows, positions, k, v):
        self.keys[layer, rows[rows < 0], :, 0] = k[rows < 0, :, 0].to(self.keys.dtype)
        right(self, layer, rows, positions, k, v)

    m.KVCache.write = write


@part("4.5")
def reserving_nothing_shrinks(m):
    """reserve(row, 0) takes the row's room away."""
    right = m.KVCache.reserve

    def reserve(self, row, length):
        right(self, row, length)
        if length <= 0:
            self.reserved[row] = length

    m.KVCache.reserve = reserve


@part("4.5")
def float16_becomes_bfloat16(m):
    """The cache has another 16-bit dtype than it was asked for."""
    right = m.KVCache.__init__

    def init(self, config, rows, max_length, dtype=torch.float32, device="cpu"):
        dtype = torch.bfloat16 if dtype == torch.float16 else dtype
        right(self, config, rows, max_length, dtype, device)

    m.KVCache.__init__ = init


@part("4.5")
def storage_shared(m):
    """All caches of one size use the same memory."""
    right, pool = m.KVCache.__init__, {}

    def init(self, config, rows, max_length, dtype=torch.float32, device="cpu"):
        right(self, config, rows, max_length, dtype, device)
        both = self.keys, self.values
        self.keys, self.values = pool.setdefault((rows, max_length, dtype), both)

    m.KVCache.__init__ = init
