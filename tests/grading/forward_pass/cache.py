"""4.5 KVCache: what is written can be read back, room is counted, and errors change nothing."""

from itertools import product

import torch

from course.cases import case, expect_equal, expect_tensor
from tests.grading.forward_pass.cache_script import LAYERS, Script, answers_of, numbers
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.forward_pass.tolerances import BF16, F16, F32, places


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
    """A token is stored at its position, whatever column it came in and whatever came before;
    the newer one stays.
    """
    script = Script(1, 8).do("reserve", 0, 8)
    for positions in ([3, 0, 2, 1], [5, 6, 4], [0, 2, 1, 3]):
        script.write(rng, [0], [positions]).read(0)
    script.run(learner)


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
    script.write(rng, [0, 2, 1, 3], [[0, 1]] * 4).write(rng, [3, 1], [[2, 3], [2, -1]])
    script.read(1, 3).read(3, 0, 2).read(0, 2, 1, 3).read(1, 2).run(learner)


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
    script = Script(2, 10).do("reserve", 0, 3).do("reserve", 1, 4)
    for row in (0, 1):
        script.do("fails", [11, 10], ["reserve", row, 11])
    for row in (2, 7, -1):
        script.do("fails", [], ["reserve", row, 1]).do("fails", [], ["free", row])
    answers = script.do("room").run(learner)
    for (_, names, (name, *args)), found in zip(script.steps[2:-1], answers[2:-1], strict=True):
        what = f"{name}({', '.join(map(str, args))}) with 2 rows of 10 tokens"
        expect_failure(found, "CacheFull" if names else "IndexError", what)
    expect_equal(answers[-1], [7, 13, 20], "[used, free, total] after the errors")


@case("4.5")
def cache_write_beyond_the_room(learner, rng):
    """A position that its own row has not reserved is CacheFull, in any layer, and then nothing at
    all has been stored or reserved.
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
    """A row that the cache does not have is IndexError, in any layer and even if there is only
    padding for it, and then nothing has been stored.
    """
    script = Script(2, 8).do("reserve", 0, 6).do("reserve", 1, 4).write(rng, [1], [[0]])
    refused = ([0, 2], [[0], [0]]), ([0, -1], [[0], [1]]), ([0, 2], [[1], [-1]])
    refuse(learner, rng, script, refused, "IndexError")


def refuse(learner, rng, script: Script, refused, kind: str) -> None:
    """Writes in (rows, positions) that fail with kind, and others before and after them."""
    script.do("room")
    for layer, (rows, positions) in product(range(LAYERS), refused):
        k, v = numbers(rng, torch.tensor(positions))
        step = ["write", layer, torch.tensor(rows), torch.tensor(positions), k, v]
        script.do("fails", [], step).read(*range(script.setting[1]), layers=[layer]).do("room")
    answers = script.write(rng, [0, 1], [[3, 5], [3, 2]]).read(0, 1).ask(learner)
    before, *rooms = answers_of("room", script, answers)
    found = answers_of("fails", script, answers)
    for answer, room, tried in zip(found, rooms, product(range(LAYERS), refused), strict=True):
        layer, (rows, positions) = tried
        what = f"write at {positions} in rows {rows} of layer {layer}"
        expect_failure(answer, kind, what)
        expect_equal(room, before, f"[used, free, total] after the refused {what}")
    script.compare(answers)


@case("4.5")
def cache_frees_and_reuses(learner, rng):
    """free gives the room back and forgets what was held; the next sequence starts at 0."""
    script = Script(2, 8).do("reserve", 0, 8).do("reserve", 1, 6)
    script.write(rng, [0, 1], [[0, 1, 2, 3, 4]] * 2).free(0).do("room").read(0, 1).read(0)
    script.free(0).do("room").do("reserve", 0, 2).write(rng, [0], [[0, 1]]).read(0, 1)
    answers = script.read(0).run(learner)
    rooms = answers_of("room", script, answers)
    expect_equal(rooms, [[6, 10, 16]] * 2, "[used, free, total] after free(0), and after another")


@case("4.5")
def cache_frees_the_row_that_is_asked(learner, rng):
    """free is about one row: the rows beside it keep their room and what they hold."""
    script = Script(3, 8)
    for row in range(3):
        script.do("reserve", row, 4 + row)
    script.write(rng, [0, 1, 2], [[0, 1, 2]] * 3).free(1).do("room").read(0, 2)
    answers = script.write(rng, [2, 0], [[3, 4], [3, -1]]).read(0, 1, 2).read(0, 2).run(learner)
    rooms = answers_of("room", script, answers)
    expect_equal(rooms, [[10, 14, 24]], "[used, free, total] after free(1)")


@case("4.5")
def cache_reserves_more_later(learner, rng):
    """A row may grow to the end of a nearly full cache, or be asked to shrink, and keeps what it
    holds.
    """
    script = Script(2, 8).do("reserve", 1, 8).do("reserve", 0, 5)
    script.write(rng, [0, 1], [[0, 1, 2]] * 2).do("reserve", 0, 8).read(0, 1)
    script.do("reserve", 0, 2).read(0, 1).write(rng, [0], [[7]]).read(0).run(learner)


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
    for kept, came in (("bfloat16", F32), ("float16", F32), ("float32", BF16), ("bfloat16", F16)):
        script = Script(2, 6, kept).do("reserve", 0, 4).do("reserve", 1, 4)
        script.write(rng, [1, 0], [[0, 1, 2], [0, -1, 1]], dtype=came).read(0, 1).run(learner)


@case("4.5")
def cache_keeps_to_itself(learner, rng):
    """Two caches share nothing: each holds what was written to it."""
    pairs = [list(numbers(rng, torch.tensor([[0]]))) for _ in range(2)]
    answers = drive(learner, "kv_pair", "tied", *pairs)
    for answer, (k, v), what in zip(answers, pairs, ("first", "second"), strict=True):
        for got, want in zip(answer[:2], (k, v), strict=True):
            expect_tensor(got, want, atol=0.0, what=f"what the {what} cache holds")
