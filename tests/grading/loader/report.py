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
    said = drive(learner, "report", shuffled, sizes)
    lines = [line for line in said if line.startswith(tuple(f"{kind}:" for kind in KINDS))]
    if problems and not lines:
        raise Wrong(f"no line of the ValueError begins with one of {KINDS} and a colon: {said[:3]}")
    for kind, name, *more in problems:
        mine = [line for line in lines if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line)]
        if len(mine) != 1:
            raise Wrong(f"{name} is {kind}, and is in {len(mine)} lines of the report: {lines}")
        if not mine[0].startswith(f"{kind}: {name}"):
            raise Wrong(
                f"the line for {name} is {mine[0]!r}, expected it to begin '{kind}: {name}'"
            )
        expect_parts(mine[0].removeprefix(f"{kind}: {name}"), more, mine[0])
    if len(lines) != len(problems):
        raise Wrong(f"the report has {len(lines)} lines for {len(problems)} problems: {lines}")
    expect_equal(lines, sorted(lines), "the lines")


def expect_parts(rest: str, parts: list, line: str) -> None:
    """The rest of a line has shapes, in whatever brackets, or a dtype's name, in this order."""
    text, at = re.sub(r"[()\[\]\s]|,(?=[)\]])", "", rest), 0
    for part in parts:
        wanted = ",".join(map(str, part)) if isinstance(part, tuple) else part
        found = re.compile(rf"(?<![\d,]){wanted}(?!\d|,\d)").search(text, at)
        if not found:
            order = " and then ".join(map(str, parts))
            raise Wrong(f"the line {line!r} should name {order}")
        at = found.end()


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
    tables["model.rotary_emb.inv_freq"] = randn(rng, 4)
    expect_match(learner, rng, found | tables, sizes, "with inv_freq outside of the layers too")
    names = [f"model.layers.0.self_attn.rotary_emb.{n}" for n in ("weight", "inv_freq.weight")]
    strangers = {name: randn(rng, 4) for name in names}
    problems = [("unexpected", name) for name in names]
    expect_report(learner, rng, found | tables | strangers, sizes, problems)


@case("2.6")
def match_of_mixed_dtypes(learner, rng):
    """Any floating dtype will do, each tensor its own; integers will not."""
    sizes = model_sizes(rng)
    found = model_tensors(rng, sizes)
    kinds = (torch.float16, torch.bfloat16, torch.float64)
    mixed = {name: t.to(rng.choice(kinds)) for name, t in found.items()}
    expect_match(learner, rng, mixed, sizes, "of mixed dtypes")
    for dtype in (torch.int8, torch.bool, torch.complex64):
        name = rng.choice(list(found))
        wrong = mixed | {name: torch.ones(found[name].shape, dtype=dtype)}
        problems = [("not floating point", name, str(dtype).removeprefix("torch."))]
        expect_report(learner, rng, wrong, sizes, problems)


@case("2.6")
def match_without_numbers(learner, rng):
    """Only names, shapes and dtypes are looked at, and 8-bit floats are floats: tensors that have
    no numbers are matched as well.
    """
    sizes = model_sizes(rng)
    kinds = ("float8_e4m3fn", "float8_e5m2", "float32")
    rows = {name: [list(s), rng.choice(kinds)] for name, s in oracle.expected_shapes(sizes)}
    got = drive(learner, "matched_without_numbers", rows, sizes)
    expect_equal(got, list(rows), "the names")


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
    sizes = model_sizes(rng, tie_word_embeddings=False)
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
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        found[name] = randn(rng, rows + 1, width)
        problems.append(("misshapen", name, (rows + 1, width), (rows, width)))
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
