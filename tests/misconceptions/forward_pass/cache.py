"""Wrong versions of 4.5 KVCache."""

import torch

from course.misconceptions import misconception
from solutions.kv_cache import CacheFull


@misconception("4.5", "KVCache.reserve")
def reserve_adds(self, row, length):
    """Your reserve adds the length to what the row has. It is the number of tokens that the row
    shall hold in all: asking for 9 after 4 makes 9.
    """
    if not 0 <= row < self.rows:
        raise IndexError(f"no row {row}")
    if length > self.max_length:
        raise CacheFull(f"{length} tokens asked for, but a row holds {self.max_length}")
    self.reserved[row] += length


@misconception("4.5", "KVCache.reserve")
def reserve_shrinks(self, row, length):
    """Your reserve sets the row's room to the length even when it had more. Asking for less changes
    nothing: the tokens beyond it are still there.
    """
    if not 0 <= row < self.rows:
        raise IndexError(f"no row {row}")
    if length > self.max_length:
        raise CacheFull(f"{length} tokens asked for, but a row holds {self.max_length}")
    self.reserved[row] = length


@misconception("4.5", "KVCache.reserve")
def reserve_without_row_check(self, row, length):
    """Your reserve takes row -1, which Python and torch read as the last row. A row that does not
    exist is an IndexError, at both ends.
    """
    if length > self.max_length:
        raise CacheFull(f"{length} tokens asked for, but a row holds {self.max_length}")
    self.reserved[row] = max(length, int(self.reserved[row]))


@misconception("4.5", "KVCache.write")
def stored_by_column(self, layer, rows, positions, k, v):
    """You store each token at its column. The second call would then overwrite the first: the place
    is the token's position.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, column] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, column] = v[batch, :, column].to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row, slot + 1, "amax")


@misconception("4.5", "KVCache.write")
def appended(self, layer, rows, positions, k, v):
    """You append tokens at the end of the row. Then the order of writing decides, the second layer
    lands behind the first, and nothing can be written again: store by position.
    """
    self._check_rows(rows.tolist())
    for b, row in enumerate(rows.tolist()):
        real = positions[b] >= 0
        start, count = int(self.lengths[row]), int(real.sum())
        if int(positions[b].max()) >= int(self.reserved[row]):
            raise CacheFull("not reserved")
        stop = min(start + count, self.max_length)
        self.keys[layer][row, :, start:stop] = k[b][:, real][:, : stop - start].to(self.keys.dtype)
        self.values[layer][row, :, start:stop] = v[b][:, real][:, : stop - start].to(
            self.values.dtype
        )
        self.lengths[row] = stop


@misconception("4.5", "KVCache.write")
def padding_stored_last(self, layer, rows, positions, k, v):
    """You store padding too: index -1 means the last place of the row, so padding overwrites a
    token there. Leave out everything whose position is -1 before you store.
    """
    self._check_rows(rows.tolist())
    batch = torch.arange(len(rows))[:, None].expand(positions.shape)
    row = rows[batch]
    if bool((positions >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, positions] = k.transpose(1, 2).to(self.keys.dtype)
    self.values[layer][row, :, positions] = v.transpose(1, 2).to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row.flatten(), positions.flatten() + 1, "amax")


@misconception("4.5", "KVCache.write")
def counted_lengths(self, layer, rows, positions, k, v):
    """You add the number of new tokens to the length. Every layer writes the same tokens, and a
    position may be written again: the length is the highest position plus 1.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths += torch.bincount(row, minlength=self.rows)
    self.lengths.clamp_(max=self.max_length)


@misconception("4.5", "KVCache.write")
def counted_past_the_end(self, layer, rows, positions, k, v):
    """You add the number of new tokens to the length, in every layer again, so that it passes the
    end of the row. The length is the highest position ever written, plus 1.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths += torch.bincount(row, minlength=self.rows)


@misconception("4.5", "KVCache.write")
def length_of_the_last_write(self, layer, rows, positions, k, v):
    """You set the length to the last position written, even when the row already reached further.
    It is the highest position ever written, plus 1.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    for one, place in zip(row.tolist(), slot.tolist()):
        self.lengths[one] = place + 1


@misconception("4.5", "KVCache.write")
def one_position_too_many(self, layer, rows, positions, k, v):
    """Your check lets one position too many through. With room for 5 the positions are 0 to 4:
    position 5 is already outside.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot > self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row, slot + 1, "amax")


@misconception("4.5", "KVCache.write")
def room_not_checked(self, layer, rows, positions, k, v):
    """You store without looking at what the row has reserved. Room that was not asked for may be
    promised to somebody else: raise CacheFull.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row, slot + 1, "amax")


@misconception("4.5", "KVCache.write")
def half_stored_before_the_error(self, layer, rows, positions, k, v):
    """You store token by token and raise in the middle, so some of them stay behind. Check all
    positions first; on an error nothing has been stored.
    """
    self._check_rows(rows.tolist())
    for b, row in enumerate(rows.tolist()):
        for t, slot in enumerate(positions[b].tolist()):
            if slot < 0:
                continue
            if slot >= int(self.reserved[row]):
                raise CacheFull("not reserved")
            self.keys[layer][row, :, slot] = k[b, :, t].to(self.keys.dtype)
            self.values[layer][row, :, slot] = v[b, :, t].to(self.values.dtype)
            self.lengths[row] = max(int(self.lengths[row]), slot + 1)


@misconception("4.5", "KVCache.write")
def written_to_the_first_rows(self, layer, rows, positions, k, v):
    """You write sequence b to row b. `rows` says where each sequence lives, and that may be row 3
    and then row 1.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = batch, positions[batch, column]
    if bool((slot >= self.reserved[rows[batch]]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row, slot + 1, "amax")


@misconception("4.5", "KVCache.write")
def write_without_row_check(self, layer, rows, positions, k, v):
    """Your write takes row -1, which torch reads as the last row: somebody else's. A row that does
    not exist is an IndexError, before anything is stored.
    """
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    self.lengths[rows] = self.lengths[rows].maximum(positions.amax(-1) + 1)


@misconception("4.5", "KVCache.read")
def read_to_the_very_end(self, layer, rows):
    """You read all max_length places. Attention would work through empty ones at every step: S is
    the longest of the rows asked for.
    """
    lengths = self.lengths[rows]
    slots = torch.arange(self.max_length)
    positions = torch.where(slots < lengths[:, None], slots, -1)
    return self.keys[layer][rows], self.values[layer][rows], positions


@misconception("4.5", "KVCache.read")
def longest_of_all_rows(self, layer, rows):
    """S is the largest length in your whole cache. Only the rows asked for count: one long sequence
    would slow down everybody.
    """
    lengths = self.lengths[rows]
    slots = torch.arange(int(self.lengths.max()))
    positions = torch.where(slots < lengths[:, None], slots, -1)
    k = self.keys[layer][rows][:, :, : len(slots)]
    return k, self.values[layer][rows][:, :, : len(slots)], positions


@misconception("4.5", "KVCache.read")
def read_from_the_first_rows(self, layer, rows):
    """You read rows 0 to B - 1. `rows` says which ones, in which order."""
    rows = torch.arange(len(rows))
    lengths = self.lengths[rows]
    slots = torch.arange(int(lengths.max()))
    positions = torch.where(slots < lengths[:, None], slots, -1)
    k = self.keys[layer][rows][:, :, : len(slots)]
    return k, self.values[layer][rows][:, :, : len(slots)], positions


@misconception("4.5", "KVCache.read")
def empty_places_numbered(self, layer, rows):
    """You number all places of a shorter row as if they held tokens. Beyond a row's own length the
    position is -1, or attention looks at zeros.
    """
    slots = torch.arange(int(self.lengths[rows].max()))
    positions = slots.expand(len(rows), -1).clone()
    k = self.keys[layer][rows][:, :, : len(slots)]
    return k, self.values[layer][rows][:, :, : len(slots)], positions


@misconception("4.5", "KVCache.free")
def length_kept_by_free(self, row):
    """Your free gives back the room but keeps the length. The next sequence in that row would see
    the tokens of the one before: forget both.
    """
    if not 0 <= row < self.rows:
        raise IndexError(f"no row {row}")
    self.reserved[row] = 0


@misconception("4.5", "KVCache.free")
def room_kept_by_free(self, row):
    """Your free forgets the tokens but keeps the room reserved. After a while no row is free:
    used_tokens has to go down.
    """
    if not 0 <= row < self.rows:
        raise IndexError(f"no row {row}")
    self.lengths[row] = 0


@misconception("4.5", "KVCache.write")
def stored_and_counted_by_column(self, layer, rows, positions, k, v):
    """You store each token at its column, and count the length by columns too. A token's place is
    its position: in a padded batch, and in every write after the first, the two differ.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row = rows[batch]
    if bool((positions[batch, column] >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, column] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, column] = v[batch, :, column].to(self.values.dtype)
    self.lengths.scatter_reduce_(0, row, column + 1, "amax")


@misconception("4.5", "KVCache.write")
def length_counted_in_layer_0(self, layer, rows, positions, k, v):
    """You raise the length only when layer 0 is written. A row has one length, whichever layer is
    written: take the highest position in every layer.
    """
    self._check_rows(rows.tolist())
    batch, column = (positions >= 0).nonzero(as_tuple=True)
    row, slot = rows[batch], positions[batch, column]
    if bool((slot >= self.reserved[row]).any()):
        raise CacheFull("not reserved")
    self.keys[layer][row, :, slot] = k[batch, :, column].to(self.keys.dtype)
    self.values[layer][row, :, slot] = v[batch, :, column].to(self.values.dtype)
    if layer == 0:
        self.lengths.scatter_reduce_(0, row, slot + 1, "amax")
