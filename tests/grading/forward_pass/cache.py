"""4.5 KVCache: what is written can be read back, room is counted, and errors change nothing.

The expected contents are kept in a plain dictionary, (row, position) -> column of random numbers.
"""

import torch

from course.cases import case, expect_equal, expect_tensor, randn
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.forward_pass.tolerances import places
from tests.reference.arrays import tiny_config

SIZES = tiny_config("tied")
LAYERS, KV, DIM = (SIZES[n] for n in ("num_hidden_layers", "num_key_value_heads", "head_dim"))


def numbers(rng, positions):
    """Random keys and values for a table of positions: [B, KV, T, D] each."""
    shape = (positions.shape[0], KV, positions.shape[1], DIM)
    return randn(rng, *shape), randn(rng, *shape)


class Script:
    """Steps for a cache, and what a right one holds after each of them."""

    def __init__(self, rows: int, max_length: int, dtype: str = "float32"):
        self.setting = ("tied", rows, max_length, dtype)
        self.steps, self.reads, self.held = [], {}, {}

    def do(self, *step):
        """A step whose answer does not matter."""
        self.steps.append(list(step))
        return self

    def write(self, rng, rows: list[int], positions, layers=range(LAYERS)):
        """Random keys and values at these positions, in each layer others."""
        positions = torch.as_tensor(positions)
        for layer in layers:
            k, v = numbers(rng, positions)
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
        answers = drive(learner, "kv_session", *self.setting, self.steps)
        dtype = getattr(torch, self.setting[3])
        for index, (layer, rows, held) in self.reads.items():
            compare(answers[index], layer, rows, held, dtype)
        return answers


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
        if got.shape == shape:
            got = got.where(real, 0)  # what lies where no token is does not matter
        what = f"read of rows {list(rows)} in layer {layer}: {'kv'[which]}"
        expect_tensor(got, want, atol=0.0, what=what)


@case("4.5")
def cache_prompt_then_tokens(learner, rng):
    """A prompt and then single tokens come back in their order, each layer with its own."""
    script = Script(1, 8).do("reserve", 0, 7).write(rng, [0], [[0, 1, 2, 3]]).read(0)
    for position in (4, 5, 6):
        script.write(rng, [0], [[position]])
    script.read(0).run(learner)


@case("4.5")
def cache_one_layer_at_a_time(learner, rng):
    """A layer's tokens can be read as soon as that layer is written, as every forward does."""
    script = Script(1, 8).do("reserve", 0, 8)
    for positions in ([0, 1, 2], [3]):
        for layer in range(LAYERS):
            script.write(rng, [0], [positions], [layer]).read(0, layers=[layer])
    script.run(learner)


@case("4.5")
def cache_length_is_the_highest(learner, rng):
    """A row has one length, its highest position plus 1, whichever layer or places it came in."""
    script = Script(2, 8).do("reserve", 0, 8).do("reserve", 1, 8)
    script.write(rng, [0, 1], [[4, 0], [1, -1]]).read(0, 1)
    script.write(rng, [0, 1], [[6], [2]], [LAYERS - 1]).read(0, 1).run(learner)


@case("4.5")
def cache_goes_by_position(learner, rng):
    """A token is stored at its position, whatever column it came in and whatever came before."""
    first, second = [[3, 0, 2, 1]], [[5, 6, 4]]
    Script(1, 8).do("reserve", 0, 8).write(rng, [0], first).write(rng, [0], second).read(0).run(
        learner
    )


@case("4.5")
def cache_ragged_rows(learner, rng):
    """Rows of different lengths are read up to the longest of those asked for; -1 fills up."""
    script = Script(4, 10)
    for row, length in enumerate((5, 9, 2, 7)):
        script.do("reserve", row, length).write(rng, [row], [list(range(length))])
    script.read(0, 1, 2, 3).read(2, 0).read(2).read(3, 2).run(learner)


@case("4.5")
def cache_any_rows(learner, rng):
    """`rows` says which row each sequence belongs to, in any order; the other rows stay."""
    script = Script(4, 6)
    for row in range(4):
        script.do("reserve", row, 6)
    script.write(rng, [0, 1, 2, 3], [[0, 1]] * 4).write(rng, [3, 1], [[2, 3], [2, -1]])
    script.read(1, 3).read(3, 0, 2).run(learner)


@case("4.5")
def cache_stores_no_padding(learner, rng):
    """Nothing is stored where the position is -1: also not in the last place of the row."""
    script = Script(3, 5)
    for row in range(3):
        script.do("reserve", row, 5)
    script.write(rng, [0, 1, 2], [[0, 1, 2, 3, 4]] * 3).read(0, 1, 2)
    script.write(rng, [2, 0, 1], places(rng, [2, 1, 3], 4)).read(0, 1, 2)
    script.write(rng, [0, 2], [[-1, -1]] * 2).read(0, 1, 2).run(learner)


@case("4.5")
def cache_overwrites(learner, rng):
    """A position written again holds the newer value, and the row is as long as it was."""
    script = Script(1, 8).do("reserve", 0, 8).write(rng, [0], [[0, 1, 2, 3, 4]])
    script.write(rng, [0], [[1, 2]]).read(0).write(rng, [0], [[5]]).read(0).run(learner)


@case("4.5")
def cache_counts_its_room(learner, rng):
    """reserve grows a row's room to the length asked for, never adds to it or shrinks it."""
    script = Script(3, 10).do("room")
    expected = [[0, 30, 30]]
    for row, length, used in ((0, 4, 4), (0, 9, 9), (0, 3, 9), (0, 0, 9), (2, 10, 19), (0, 9, 19)):
        script.do("reserve", row, length).do("room")
        expected.append([used, 30 - used, 30])
    answers = script.run(learner)
    rooms = [answer for answer in answers if answer is not None]
    expect_equal(rooms, expected, "[used, free, total] at the start and after each reserve")


@case("4.5")
def cache_refuses_what_it_lacks(learner, rng):
    """More than max_length is CacheFull and names both; an unknown row is IndexError."""
    script = Script(2, 10).do("reserve", 1, 4)
    script.do("fails", [11, 10], ["reserve", 1, 11])
    for step in (["reserve", 2, 1], ["reserve", -1, 1], ["free", 2], ["free", -1]):
        script.do("fails", [], step)
    answers = script.do("room").run(learner)
    expect_failure(answers[1], "CacheFull", "reserve(1, 11) with max_length 10")
    for (_, _, (name, *args)), found in zip(script.steps[2:6], answers[2:6], strict=True):
        expect_failure(found, "IndexError", f"{name}({', '.join(map(str, args))}) with 2 rows")
    expect_equal(answers[6], [4, 16, 20], "[used, free, total] after the errors")


@case("4.5")
def cache_write_beyond_the_room(learner, rng):
    """A position that its own row has not reserved is CacheFull, and then nothing at all has been
    stored.
    """
    script = Script(3, 8).do("reserve", 0, 6).do("reserve", 1, 4)
    script.write(rng, [0, 1], [[0, 1, 2]] * 2)
    refused = (
        ([0, 1], [[3, 4], [3, 4]]),  # 4 is beyond the room of row 1, but not of row 0
        ([0, 1], [[5, 0], [0, 4]]),  # and here it is not the highest position
        ([0, 1], [[1, 7], [1, 3]]),
        ([2], [[0]]),
    )
    refuse(learner, rng, script, refused, "CacheFull")


@case("4.5")
def cache_write_in_unknown_rows(learner, rng):
    """A row that the cache does not have is IndexError, and then nothing has been stored."""
    script = Script(2, 8).do("reserve", 0, 6).do("reserve", 1, 4).write(rng, [1], [[0]])
    refuse(learner, rng, script, (([0, 2], [[0], [0]]), ([0, -1], [[0], [1]])), "IndexError")


def refuse(learner, rng, script: Script, refused, kind: str) -> None:
    """Writes in (rows, positions) that fail with kind, and others before and after them."""
    for rows, positions in refused:
        k, v = numbers(rng, torch.tensor(positions))
        step = ["write", 0, torch.tensor(rows), torch.tensor(positions), k, v]
        script.do("fails", [], step).read(*range(script.setting[1]), layers=[0])
    answers = script.write(rng, [0, 1], [[3, 5], [3, 2]]).read(0, 1).run(learner)
    found = [a for a, step in zip(answers, script.steps, strict=True) if step[0] == "fails"]
    for answer, (rows, positions) in zip(found, refused, strict=True):
        expect_failure(answer, kind, f"write at {positions} in rows {rows}")


@case("4.5")
def cache_frees_and_reuses(learner, rng):
    """free gives the room back and forgets what was held; the next sequence starts at 0."""
    script = Script(2, 8).do("reserve", 0, 8).do("reserve", 1, 6)
    script.write(rng, [0, 1], [[0, 1, 2, 3, 4]] * 2).free(0).do("room").read(0, 1).read(0)
    script.free(0).do("room").do("reserve", 0, 2).write(rng, [0], [[0, 1]]).read(0, 1)
    answers = script.read(0).run(learner)
    rooms = [a for a, step in zip(answers, script.steps, strict=True) if step[0] == "room"]
    expect_equal(rooms, [[6, 10, 16]] * 2, "[used, free, total] after free(0), and after another")


@case("4.5")
def cache_frees_the_row_that_is_asked(learner, rng):
    """free is about one row: the rows beside it keep their room and what they hold."""
    script = Script(3, 8)
    for row in range(3):
        script.do("reserve", row, 4 + row)
    script.write(rng, [0, 1, 2], [[0, 1, 2]] * 3).free(1).do("room").read(0, 2)
    answers = script.write(rng, [2, 0], [[3, 4], [3, -1]]).read(0, 1, 2).read(0, 2).run(learner)
    rooms = [a for a, step in zip(answers, script.steps, strict=True) if step[0] == "room"]
    expect_equal(rooms, [[10, 14, 24]], "[used, free, total] after free(1)")


@case("4.5")
def cache_reserves_more_later(learner, rng):
    """A row may grow to the end of a nearly full cache, and keeps what it holds meanwhile."""
    script = Script(2, 8).do("reserve", 1, 8).do("reserve", 0, 5)
    script.write(rng, [0, 1], [[0, 1, 2]] * 2).do("reserve", 0, 8).read(0, 1)
    script.do("reserve", 0, 2).write(
        rng,
        [0],
        [[7]],
    ).read(0).run(learner)


@case("4.5")
def cache_one_token_and_padding(learner, rng):
    """A decode step in which one sequence is only padding stores nothing for it."""
    script = Script(2, 4).do("reserve", 0, 4).do("reserve", 1, 4)
    script.write(rng, [0, 1], [[0, 1, 2, 3], [0, 1, 2, -1]]).write(rng, [0, 1], [[-1], [3]])
    script.read(0, 1).run(learner)


@case("4.5")
def cache_frees_the_room(learner, rng):
    """After free a row has no room: writing to it is CacheFull again."""
    script = Script(1, 8).do("reserve", 0, 8).write(rng, [0], [[0, 1]]).free(0)
    k, v = numbers(rng, torch.tensor([[0]]))
    step = ["write", 0, torch.tensor([0]), torch.tensor([[0]]), k, v]
    answers = script.do("fails", [], step).run(learner)
    expect_failure(answers[-1], "CacheFull", "write after free")


@case("4.5")
def cache_in_16_bits(learner, rng):
    """Keys and values are kept in the cache's own dtype, whatever they came in."""
    for dtype in ("bfloat16", "float16"):
        script = Script(2, 6, dtype).do("reserve", 0, 4).do("reserve", 1, 4)
        script.write(rng, [1, 0], [[0, 1, 2], [0, -1, 1]]).read(0, 1).run(learner)


@case("4.5")
def cache_keeps_to_itself(learner, rng):
    """Two caches share nothing: each holds what was written to it."""
    pairs = [list(numbers(rng, torch.tensor([[0]]))) for _ in range(2)]
    answers = drive(learner, "kv_pair", "tied", *pairs)
    for answer, (k, v), what in zip(answers, pairs, ("first", "second"), strict=True):
        for got, want in zip(answer[:2], (k, v), strict=True):
            expect_tensor(got, want, atol=0.0, what=f"what the {what} cache holds")
