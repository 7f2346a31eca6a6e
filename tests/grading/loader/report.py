"""2.6 match_tensors."""

import re

import torch

from course.cases import Wrong, case, expect_equal, randn
from tests.grading.loader.files import drive, model_sizes, model_tensors
from tests.oracles import loader as oracle

KINDS = ("missing", "unexpected", "misshapen", "not floating point")


def expect_match(learner, rng, found: dict, sizes: dict, what: str) -> None:
    """All expected tensors, in the order of expected_tensors, each the very one that was given."""
    shuffled = dict(rng.sample(list(found.items()), len(found)))
    got = drive(learner, "matched", shuffled, sizes)
    names = [name for name, _ in oracle.expected_shapes(sizes)]
    expect_equal([name for name, _ in got], names, f"the names {what}")
    copied = [name for name, same in got if not same]
    if copied:
        raise Wrong(f"{what}: {copied[0]} is another tensor than the one that was given")


def expect_report(learner, rng, found: dict, sizes: dict, problems: list[tuple]) -> None:
    """One ValueError with a line for each of (kind, name, *what else the line has), sorted."""
    shuffled = dict(rng.sample(list(found.items()), len(found)))
    lines = drive(learner, "report", shuffled, sizes)
    lines = [line for line in lines if line.startswith(tuple(f"{kind}:" for kind in KINDS))]
    for kind, name, *more in problems:
        mine = [line for line in lines if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line)]
        if len(mine) != 1:
            raise Wrong(f"{name} is {kind}, and is in {len(mine)} lines of the report: {lines}")
        if not mine[0].startswith(f"{kind}: {name}"):
            raise Wrong(
                f"the line for {name} is {mine[0]!r}, expected it to begin '{kind}: {name}'"
            )
        for part in more:
            expect_part(mine[0].removeprefix(f"{kind}: {name}"), part)
    if len(lines) != len(problems):
        raise Wrong(f"the report has {len(lines)} lines for {len(problems)} problems: {lines}")
    expect_equal(lines, sorted(lines), "the lines")


def expect_part(line: str, part) -> None:
    """A line has a shape's numbers, in whatever brackets, or a dtype's name."""
    text = re.sub(r"[()\[\]\s]|,(?=[)\]])", "", line)
    wanted = ",".join(map(str, part)) if isinstance(part, tuple) else part
    if not re.search(rf"(?<![\d,]){wanted}(?!\d|,\d)", text):
        raise Wrong(f"the line {line!r} does not name {part}")


@case("2.6")
def match_of_all(learner, rng):
    """What is expected comes back in the order of expected_tensors, and nothing is copied."""
    for tied in (True, False):
        sizes = model_sizes(rng, tie_word_embeddings=tied)
        for dtype in (torch.float32, torch.bfloat16):
            found = model_tensors(rng, sizes, dtype)
            expect_match(learner, rng, found, sizes, f"of a model in {dtype}")


@case("2.6")
def match_with_a_redundant_head(learner, rng):
    """A tied head that is in the file all the same is left out, whatever it looks like."""
    sizes = model_sizes(rng)
    found = model_tensors(rng, sizes)
    for head in (found["model.embed_tokens.weight"].clone(), torch.ones(3)):
        extra = {"lm_head.weight": head}
        expect_match(learner, rng, found | extra, sizes, "with a tied head in the file")


@case("2.6")
def match_with_old_tables(learner, rng):
    """The rotary tables of old files are left out, in every layer; other strangers are not."""
    sizes = model_sizes(rng)
    found = model_tensors(rng, sizes)
    tables = {
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq": randn(rng, 4)
        for i in range(sizes["num_hidden_layers"])
    }
    expect_match(learner, rng, found | tables, sizes, "with inv_freq in each layer")
    stranger = {"model.layers.0.self_attn.rotary_emb.weight": randn(rng, 4)}
    problems = [("unexpected", next(iter(stranger)))]
    expect_report(learner, rng, found | tables | stranger, sizes, problems)


@case("2.6")
def match_of_mixed_dtypes(learner, rng):
    """Any floating dtype will do, each tensor its own; integers will not."""
    sizes = model_sizes(rng)
    found = model_tensors(rng, sizes)
    kinds = (torch.float16, torch.bfloat16, torch.float64)
    mixed = {name: t.to(rng.choice(kinds)) for name, t in found.items()}
    expect_match(learner, rng, mixed, sizes, "of mixed dtypes")
    name = rng.choice(list(found))
    wrong = mixed | {name: torch.ones(found[name].shape, dtype=torch.int8)}
    problems = [("not floating point", name, "int8")]
    expect_report(learner, rng, wrong, sizes, problems)


@case("2.6")
def report_of_the_missing(learner, rng):
    """Every missing tensor has a line, an untied head too."""
    sizes = model_sizes(rng, tie_word_embeddings=False)
    found = model_tensors(rng, sizes)
    gone = {"lm_head.weight", *rng.sample(list(found), 4)}
    left = {name: t for name, t in found.items() if name not in gone}
    expect_report(learner, rng, left, sizes, [("missing", name) for name in gone])
    expect_report(learner, rng, {}, sizes, [("missing", name) for name in found])


@case("2.6")
def report_of_the_unexpected(learner, rng):
    """Every stranger has a line: another layer, a bias, a name that is nearly right."""
    sizes = model_sizes(rng)
    layers = sizes["num_hidden_layers"]
    names = (
        f"model.layers.{layers}.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.norm.bias",
        "embed_tokens.weight",
        "lm_head.bias",
    )
    found = model_tensors(rng, sizes) | {name: randn(rng, 2) for name in names}
    expect_report(learner, rng, found, sizes, [("unexpected", name) for name in names])


@case("2.6")
def report_of_the_misshapen(learner, rng):
    """A tensor of another shape has a line with both shapes; as many numbers are not enough."""
    sizes = model_sizes(rng)
    found, problems = model_tensors(rng, sizes), []
    for part in ("mlp.up_proj", "self_attn.k_proj"):
        name = f"model.layers.1.{part}.weight"
        a, b = found[name].shape
        found[name] = found[name].t().contiguous()
        problems.append(("misshapen", name, (b, a), (a, b)))
    width = sizes["hidden_size"]
    found["model.norm.weight"] = randn(rng, 1, width)
    problems.append(("misshapen", "model.norm.weight", (1, width), (width,)))
    rows = sizes["vocab_size"]
    found["model.embed_tokens.weight"] = randn(rng, rows + 1, width)
    problems.append(("misshapen", "model.embed_tokens.weight", (rows + 1, width), (rows, width)))
    expect_report(learner, rng, found, sizes, problems)


@case("2.6")
def report_of_everything(learner, rng):
    """All that is wrong is in one report: one line for each tensor, sorted."""
    sizes = model_sizes(rng)
    found = model_tensors(rng, sizes)
    missing = rng.sample([name for name in found if "layernorm" in name], 2)
    for name in missing:
        del found[name]
    both, integers = "model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.gate_proj.weight"
    shape = tuple(found[both].shape)
    found[both] = torch.ones(2, 3, dtype=torch.int64)
    found[integers] = torch.ones(shape, dtype=torch.uint8)
    found["lm_head.weight"] = randn(rng, 2)
    found["surprise"] = randn(rng, 1)
    problems = [("missing", name) for name in missing]
    problems += [("unexpected", "surprise"), ("misshapen", both, (2, 3), shape)]
    problems += [("not floating point", integers, "uint8")]
    expect_report(learner, rng, found, sizes, problems)
