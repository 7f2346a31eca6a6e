"""3.6 save_quantized and load_quantized."""

import json

import torch
from safetensors.torch import save as bytes_of

from course.cases import Wrong, case, expect_equal, expect_tensor, randn
from tests.grading.forward_pass.driving import drive, expect_failure
from tests.grading.quantizer.checks import weight_of
from tests.grading.quantizer.weights import fields_of

PARTS = ("data", "scale", "minimum")


def some_weights(rng) -> dict:
    """A small checkpoint: weights in several formats, and tensors that were left alone."""
    weights = {f"layer.{bits}.{size}.weight": fields_of(weight_of(rng, 5, 40), bits, size)
               for bits, size in ((8, None), (8, 16), (4, 32), (3, 8), (2, 64))}  # fmt: skip
    weights["model.embed_tokens.weight"] = randn(rng, 20, 8)
    weights["model.norm.weight"] = randn(rng, 8).bfloat16()
    weights["half.weight"] = randn(rng, 3, 4).half()
    return weights


def layout_of(weights: dict) -> dict:
    """What the metadata says of the quantized ones."""
    return {
        name: {key: weight[key] for key in ("bits", "group_size", "shape")}
        for name, weight in weights.items()
        if isinstance(weight, dict)
    }


def tensors_of(weights: dict) -> dict:
    """Every tensor of the file by its name there."""
    flat = {}
    for name, weight in weights.items():
        if isinstance(weight, dict):
            flat |= {f"{name}.{p}": weight[p] for p in PARTS if weight[p] is not None}
        else:
            flat[name] = weight
    return flat


def metadata_of(weights: dict, **changes) -> dict:
    """The metadata of a right file; None takes a key away."""
    right = {"format": "quantized-llama", "version": "1", "tensors": json.dumps(layout_of(weights))}
    return {key: value for key, value in (right | changes).items() if value is not None}


def file_of(tensors: dict, metadata: dict | None) -> torch.Tensor:
    """A file as the safetensors package writes it."""
    return as_tensor(bytes_of(tensors, metadata))


def as_tensor(data: bytes) -> torch.Tensor:
    """Bytes as they travel."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def expect_weights(found: dict, expected: dict, what: str) -> None:
    """The same names, each with the same tensor or the same fields, bit for bit."""
    expect_equal(sorted(found), sorted(expected), f"the names of {what}")
    for name, weight in expected.items():
        if not isinstance(weight, dict):
            expect_tensor(found[name], weight, atol=0, what=name)
            continue
        if not isinstance(found[name], dict):
            raise Wrong(f"{name} of {what} should be a QuantizedTensor")
        for key, value in weight.items():
            if isinstance(value, torch.Tensor):
                expect_tensor(found[name][key], value, atol=0, what=f"{key} of {name}")
            else:
                expect_equal(found[name][key], value if key != "shape" else list(value), key)


def content(found: dict | None) -> dict:
    """What the scenario found in the file, if there is one."""
    if found is None:
        raise Wrong("afterwards there is no file at the path")
    return found


@case("3.6")
def saved_as_documented(learner, rng):
    """The safetensors package finds each part under its name, and nothing else in the file."""
    weights = some_weights(rng)
    for kind in ("str", "Path"):
        found = content(drive(learner, "save", weights, kind)["content"])["tensors"]
        expected = tensors_of(weights)
        expect_equal(sorted(found), sorted(expected), "the names of the tensors in the file")
        for name, tensor in expected.items():
            expect_tensor(found[name], tensor, atol=0, what=f"{name} in the file")


@case("3.6")
def saved_metadata(learner, rng):
    """The metadata has format, version and, as JSON, bits, group_size and shape of each weight."""
    weights = some_weights(rng)
    metadata = content(drive(learner, "save", weights, "str")["content"])["metadata"]
    kept = {key: metadata.get(key) for key in ("format", "version")}
    expect_equal(kept, {"format": "quantized-llama", "version": "1"}, "the metadata")
    try:
        layout = json.loads(metadata.get("tensors", ""))
    except ValueError:
        raise Wrong(f"tensors in the metadata is no JSON: {metadata.get('tensors')!r}") from None
    expect_equal(layout, layout_of(weights), "tensors in the metadata")


@case("3.6")
def saved_and_nothing_left(learner, rng):
    """Afterwards the folder holds the file alone, new or in place of an old one, also where a run
    that was stopped has left a .partial file.
    """
    weights = some_weights(rng)
    for old in (None, as_tensor(b"an older file")):
        found = drive(learner, "save", weights, "str", old)
        expect_equal(found["files"], ["quantized.safetensors"], "the files in the folder")
        names = sorted(content(found["content"])["tensors"])
        expect_equal(names, sorted(tensors_of(weights)), "the names in the file")


@case("3.6")
def saved_whole_or_not(learner, rng):
    """When the disk is full in the middle of writing, the old file is still there, whole, and an
    error says so.
    """
    old = as_tensor(b"an older file, still good")
    found = drive(learner, "save_on_a_full_disk", some_weights(rng), old)
    if not found["old_kept"]:
        raise Wrong("writing stopped half way, and the path does not hold the old file any more")
    if "raised" not in found:
        raise Wrong("the disk was full, nothing was saved, and save_quantized raised nothing")


@case("3.6")
def saved_views(learner, rng):
    """Tensors that are views of others, or lie in memory column by column, are written as well."""
    tensor = randn(rng, 6, 4)
    found = content(drive(learner, "save_views", tensor))["tensors"]
    for name, part in (("turned", tensor.T), ("first", tensor[:3]), ("second", tensor[3:])):
        expect_tensor(found[name], part.contiguous(), atol=0, what=name)


@case("3.6")
def saved_twice_under_two_names(learner, rng):
    """A tensor under two names, as a tied head is, and one that overlaps it: each in full.

    The safetensors package itself refuses tensors that share memory.
    """
    tensor = randn(rng, 6, 4)
    found = content(drive(learner, "save_shared", tensor))["tensors"]
    expect_equal(sorted(found), ["embed", "front", "head"], "the names of the tensors in the file")
    for name, part in (("embed", tensor), ("head", tensor), ("front", tensor[:4])):
        expect_tensor(found[name], part.contiguous(), atol=0, what=name)


@case("3.6")
def loaded_as_saved(learner, rng):
    """What the safetensors package wrote in this layout comes back, bit for bit; what else the
    metadata may say is nobody's business.
    """
    for kind in ("str", "Path"):
        weights = some_weights(rng)
        data = file_of(tensors_of(weights), metadata_of(weights, made_by="somebody"))
        expect_weights(drive(learner, "load", data, kind), weights, "what was loaded")


@case("3.6")
def loaded_without_quantized(learner, rng):
    """A file in which nothing is quantized, or nothing left alone, is as good as any."""
    for wanted in (dict, torch.Tensor):
        weights = {n: w for n, w in some_weights(rng).items() if isinstance(w, wanted)}
        data = file_of(tensors_of(weights), metadata_of(weights))
        expect_weights(drive(learner, "load", data, "str"), weights, "what was loaded")


@case("3.6")
def loaded_as_views(learner, rng):
    """Nothing is copied: of a file of megabytes, next to nothing is allocated."""
    found = drive(learner, "load_mapped", rng.randrange(900, 1100))
    if found["copied"]:
        raise Wrong("numbers of the file were copied into memory; views of it take none")
    expect_equal(found["sum"], found["expected"], "the sum of the numbers")


def refused(learner, data, what: str, *names: str) -> None:
    """load_quantized says ValueError, naming the file and these."""
    found = drive(learner, "load_refused", data, list(names))
    expect_failure(found, "ValueError", f"load_quantized of {what}")


@case("3.6")
def refused_from_others(learner, rng):
    """A file that is not there, a plain checkpoint, another format: an error that says so."""
    found = drive(learner, "load_refused", None, [])
    expect_failure(found, "FileNotFoundError", "load_quantized of no file")
    weights = some_weights(rng)
    tensors = tensors_of(weights)
    for metadata in (None, {}, {"format": "pt"}, metadata_of(weights, format="gptq")):
        refused(learner, file_of(tensors, metadata), f"a file with the metadata {metadata!r:.40}")
    plain = {n: w for n, w in weights.items() if isinstance(w, torch.Tensor)}
    refused(learner, file_of(plain, {"format": "pt"}), "a checkpoint that is not quantized")


@case("3.6")
def refused_of_a_newer_version(learner, rng):
    """A newer version is refused, and the message has its number."""
    weights = some_weights(rng)
    for version in ("2", "17"):
        data = file_of(tensors_of(weights), metadata_of(weights, version=version))
        refused(learner, data, f"version {version}", version)
    for version in (None, "", "one"):
        data = file_of(tensors_of(weights), metadata_of(weights, version=version))
        refused(learner, data, f"version {version!r}")


@case("3.6")
def refused_when_damaged(learner, rng):
    """A file cut off anywhere, or with a damaged header, is refused."""
    weights = some_weights(rng)
    data = file_of(tensors_of(weights), metadata_of(weights))
    for kept in (0, 5, 8, 40, len(data) // 2, len(data) - 1):
        refused(learner, data[:kept].clone(), f"the first {kept} of {len(data)} bytes")
    for at in (8, 9, 60):
        broken = data.clone()
        broken[at] = 0
        refused(learner, broken, f"a file with byte {at} set to 0")


@case("3.6")
def refused_when_metadata_lies(learner, rng):
    """Metadata that is no JSON, or says what no weight can have, is refused."""
    weights = some_weights(rng)
    tensors, name = tensors_of(weights), "layer.4.32.weight"
    for text in (None, "", "[]", "{", '{"a": 1}', '{"a": {}}', "null", "[" * 9000):
        data = file_of(tensors, metadata_of(weights, tensors=text))
        refused(learner, data, f"tensors {text!r:.20}")
    right = layout_of(weights)[name]
    for key, value in (
        ("bits", 5), ("bits", "4"), ("bits", None), ("bits", True), ("group_size", 0),
        ("group_size", None), ("group_size", "32"), ("group_size", 1.5), ("shape", [5]),
        ("shape", [5, "40"]), ("shape", [5, -40]), ("shape", {}), ("shape", [5, 40, 1]),
        ("shape", [0, 40]),
    ):  # fmt: skip
        layout = layout_of(weights) | {name: right | {key: value}}
        data = file_of(tensors, metadata_of(weights, tensors=json.dumps(layout)))
        refused(learner, data, f"{key} {value!r}", name)


@case("3.6")
def refused_when_parts_do_not_fit(learner, rng):
    """A part that is missing, or has another shape or dtype than the format calls for, is named."""
    weights = some_weights(rng)
    for name in ("layer.4.32.weight", "layer.8.None.weight", "layer.2.64.weight"):
        for part in PARTS:
            stored = f"{name}.{part}"
            tensors = tensors_of(weights)
            if stored not in tensors:
                continue
            old = tensors.pop(stored)
            refused(learner, file_of(tensors, metadata_of(weights)), f"no {stored}", stored)
            longer, shorter = torch.cat((old, old), 1), old[:-1].contiguous()
            for other in (longer, shorter, old.flatten(), old.to(torch.int16), old.double()):
                data = file_of(tensors | {stored: other}, metadata_of(weights))
                refused(learner, data, f"{stored} as {other.dtype} {list(other.shape)}", stored)


@case("3.6")
def refused_when_shapes_lie(learner, rng):
    """bits, group_size and shape that are possible, but not those of the parts, are refused."""
    weights = some_weights(rng)
    tensors, name = tensors_of(weights), "layer.4.32.weight"
    for change in ({"bits": 2}, {"group_size": 16}, {"shape": [5, 80]}, {"shape": [40, 5]},
                   {"bits": 8, "group_size": None}):  # fmt: skip
        layout = layout_of(weights)
        layout[name] |= change
        data = file_of(tensors, metadata_of(weights, tensors=json.dumps(layout)))
        refused(learner, data, f"{name} said to have {change}", name)


@case("3.6")
def refused_when_something_is_left(learner, rng):
    """Integers that belong to no weight, or a weight there both whole and quantized: refused."""
    weights = some_weights(rng)
    for dtype in (torch.uint8, torch.int64, torch.bool):
        left = tensors_of(weights) | {"left.weight.data": torch.ones(2, 3, dtype=dtype)}
        what = f"a stray part of {str(dtype)[6:]}"
        refused(learner, file_of(left, metadata_of(weights)), what, "left.weight.data")
    name = "layer.4.32.weight"
    twice = tensors_of(weights) | {name: torch.ones(5, 40)}
    refused(learner, file_of(twice, metadata_of(weights)), "a weight that is there twice", name)
    layout = {n: entry for n, entry in layout_of(weights).items() if n != name}
    data = file_of(tensors_of(weights), metadata_of(weights, tensors=json.dumps(layout)))
    refused(learner, data, "a weight without metadata", f"{name}.data")
