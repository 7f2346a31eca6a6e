"""3.3 pack and unpack."""

import torch

from course.cases import Wrong, case, describe, expect_raises
from tests.grading.quantizer.checks import expect_kind
from tests.oracles import quantizer as oracle


def numbers(rng, bits, *shape):
    """Random uint8 numbers of so many bits."""
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    return torch.randint(2**bits, shape, generator=generator, dtype=torch.uint8)


def expect_bytes(got, expected, what):
    """got is this uint8 tensor; a difference is shown in zeros and ones."""
    expect_kind(got, torch.uint8, expected.shape, what)
    for place in (got != expected).nonzero().tolist():
        mine, theirs = (format(int(t[tuple(place)]), "08b") for t in (got, expected))
        raise Wrong(f"{what} is {mine} at {place}, expected {theirs} (in zeros and ones)")


@case("3.3")
def pack_by_hand(learner, rng):
    """4 bits: 1 and 2 are the byte 2 * 16 + 1 = 33; 2 bits: 1, 0, 3, 2 are 1 + 48 + 128 = 177."""
    row = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    expect_bytes(learner.pack(row, 4), torch.tensor([[33, 15]], dtype=torch.uint8), "4 bits")
    row = torch.tensor([[1, 0, 3, 2]], dtype=torch.uint8)
    expect_bytes(learner.pack(row, 2), torch.tensor([[177]], dtype=torch.uint8), "2 bits")


@case("3.3")
def pack_of_each_width(learner, rng):
    """8 bits: one number a byte; 4 and 3: two, 4 bits apart; 2: four. The first is lowest."""
    for bits in (2, 3, 4, 8):
        q = numbers(rng, bits, 5, 24)
        expected = torch.from_numpy(oracle.packed(q.numpy(), bits))
        expect_bytes(learner.pack(q, bits), expected, f"{bits} bits")


@case("3.3")
def pack_of_any_length(learner, rng):
    """Where a row ends within a byte, the rest of that byte is 0; each row begins a new byte."""
    for bits in (2, 3, 4, 8):
        for count in (1, 2, 3, 5, 7):
            q = numbers(rng, bits, 3, count)
            expected = torch.from_numpy(oracle.packed(q.numpy(), bits))
            expect_bytes(learner.pack(q, bits), expected, f"{count} numbers of {bits} bits")


@case("3.3")
def pack_refuses(learner, rng):
    """A number that does not fit is named; other dtypes and other bits are refused too."""
    for bits, number in ((2, 4), (3, 8), (4, 16), (4, 255), (3, 13)):
        q = numbers(rng, bits, 3, 8)
        q[1, rng.randrange(8)] = number
        with expect_raises("ValueError", naming=[number]):
            learner.pack(q, bits)
    for dtype in (torch.int8, torch.int64, torch.float32, torch.bool):
        with expect_raises("ValueError"):
            learner.pack(numbers(rng, 2, 2, 8).to(dtype), 4)
            raise Wrong(f"{dtype} was packed, expected ValueError")
    for bits in (0, 1, 5, 6, 7, 16):
        with expect_raises("ValueError"):
            learner.pack(torch.zeros(2, 8, dtype=torch.uint8), bits)
            raise Wrong(f"{bits} bits were packed, expected ValueError")


@case("3.3")
def unpack_by_hand(learner, rng):
    """The byte 33 holds 1 and 2 in 4 bits; the byte 177 holds 1, 0, 3, 2 in 2 bits."""
    got = learner.unpack(torch.tensor([[33, 15]], dtype=torch.uint8), 4, 4)
    expect_bytes(got, torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8), "4 bits")
    got = learner.unpack(torch.tensor([[177]], dtype=torch.uint8), 2, 4)
    expect_bytes(got, torch.tensor([[1, 0, 3, 2]], dtype=torch.uint8), "2 bits")


@case("3.3")
def unpack_undoes_pack(learner, rng):
    """What the oracle packed comes back, number by number, for any count."""
    for bits in (2, 3, 4, 8):
        for count in (1, 2, 4, 6, 7, 33):
            q = numbers(rng, bits, 4, count)
            packed = torch.from_numpy(oracle.packed(q.numpy(), bits))
            what = f"{count} numbers of {bits} bits"
            expect_bytes(learner.unpack(packed, bits, count), q, what)


@case("3.3")
def unpack_of_ones(learner, rng):
    """Nothing unpacked is above 2 ** bits - 1: bytes of ones are 7 and 7 in 3 bits, not 15."""
    for bits, per_byte in ((2, 4), (3, 2), (4, 2), (8, 1)):
        got = learner.unpack(torch.full((2, 3), 255, dtype=torch.uint8), bits, 3 * per_byte)
        expected = torch.full((2, 3 * per_byte), 2**bits - 1, dtype=torch.uint8)
        expect_bytes(got, expected, f"{bits} bits of ones")


@case("3.3")
def pack_any_number_of_dimensions(learner, rng):
    """Only the last dimension is packed: [2, 3, 8] becomes [2, 3, 4] in 4 bits, and [8] is [4]."""
    for shape in ((8,), (2, 3, 8), (2, 1, 2, 5)):
        q = numbers(rng, 4, *shape)
        flat = torch.from_numpy(oracle.packed(q.reshape(-1, shape[-1]).numpy(), 4))
        packed = flat.reshape(*shape[:-1], -1)
        expect_bytes(learner.pack(q, 4), packed, f"{list(shape)} packed")
        expect_bytes(learner.unpack(packed, 4, shape[-1]), q, f"{list(shape)} unpacked")


@case("3.3")
def pack_of_a_view(learner, rng):
    """It does not matter how q lies in memory: a transposed tensor is as good as any."""
    q = numbers(rng, 4, 6, 8)
    got = learner.scenario("on_transposed", "pack", q, 4)
    expect_bytes(got, torch.from_numpy(oracle.packed(q.numpy(), 4)), "a transposed q packed")
    packed = torch.from_numpy(oracle.packed(q.numpy(), 4))
    got = learner.scenario("on_transposed", "unpack", packed, 4, 8)
    expect_bytes(got, q, "a transposed tensor unpacked")


@case("3.3")
def unpack_refuses(learner, rng):
    """A count that does not fit the bytes is refused, naming both; so are other bits."""
    for bits, width, count in ((4, 11, 20), (4, 11, 23), (4, 11, 0), (2, 13, 60), (8, 17, 16)):
        packed = torch.zeros(2, width, dtype=torch.uint8)
        with expect_raises("ValueError", naming=[width, count]):
            found = learner.unpack(packed, bits, count)
            raise Wrong(
                f"{count} numbers of {bits} bits from {width} bytes came back as {describe(found)}"
            )
    for shape in ([7], [2, 3, 7]):
        with expect_raises("ValueError", naming=[7, 20]):
            learner.unpack(torch.zeros(shape, dtype=torch.uint8), 4, 20)
    for bits in (0, 1, 5, 6, 7, 16):
        for count in (8, 16, 32):  # what 8 bytes hold in some width
            with expect_raises("ValueError"):
                learner.unpack(torch.zeros(2, 8, dtype=torch.uint8), bits, count)
                raise Wrong(f"{bits} bits were unpacked, expected ValueError")
