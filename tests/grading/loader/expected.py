"""2.4 expected_tensors."""

from course.cases import Wrong, case, describe
from tests.grading.loader.files import model_sizes
from tests.oracles import loader as oracle
from tests.reference.arrays import read_json


def expect_shapes(learner, sizes: dict, expected: dict | None = None, ordered: bool = True) -> None:
    """Names, shapes and order for a config of these sizes."""
    got = learner.scenario("shapes", sizes)
    expected = dict(oracle.expected_shapes(sizes)) if expected is None else expected
    if not isinstance(got, dict):
        raise Wrong(f"it should return a dict, but returned {describe(got)}")
    what = f"with {sizes}"
    for words, names in (
        ("lacks", expected.keys() - got.keys()),
        ("has, and should not,", got.keys() - expected.keys()),
    ):
        if names:
            raise Wrong(f"{what}: it {words} {', '.join(sorted(names)[:4])} ({len(names)} in all)")
    for name, shape in expected.items():
        if not isinstance(got[name], tuple) or got[name] != tuple(shape):
            raise Wrong(f"{what}: {name} is {describe(got[name])}, expected {tuple(shape)}")
    if ordered and list(got) != list(expected):
        first = next(a for a, b in zip(got, expected, strict=True) if a != b)
        raise Wrong(f"{what}: the order differs from the docstring's, first at {first}")


@case("2.4")
def expected_in_a_small_model(learner, rng):
    """All twelve kinds of tensors, where no two widths are alike: matrices are [out, in]."""
    expect_shapes(learner, model_sizes(rng))


@case("2.4")
def expected_with_and_without_head(learner, rng):
    """The head is in the list only when it is not tied to the embedding."""
    sizes = model_sizes(rng)
    for tied in (True, False):
        expect_shapes(learner, sizes | {"tie_word_embeddings": tied})


@case("2.4")
def expected_for_any_heads(learner, rng):
    """Queries are H D wide, keys and values KV D, and neither need be the hidden size."""
    for heads, shared, head_dim in ((4, 4, 4), (6, 2, 16), (8, 1, 2), (1, 1, 6)):
        sizes = model_sizes(rng, num_attention_heads=heads, num_key_value_heads=shared)
        expect_shapes(learner, sizes | {"head_dim": head_dim})


@case("2.4")
def expected_for_many_layers(learner, rng):
    """Layers are counted from 0 and follow each other in number: 2 comes before 10."""
    for layers in (1, 12):
        expect_shapes(learner, model_sizes(rng, num_hidden_layers=layers))


@case("2.4")
def expected_as_in_transformers(learner, rng):
    """Names and shapes are those of transformers' model for the same config."""
    for stored in read_json("loader.json")["configs"].values():
        names = (*model_sizes(rng),)
        sizes = {name: stored["config"][name] for name in names}
        expect_shapes(learner, sizes, stored["shapes"], ordered=False)
