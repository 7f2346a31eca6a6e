"""Chapter 02: a checkpoint folder, which is one file of weights or several, and all of its tensors.

What must be in it follows from the config. What is in it is said once, in one report: a person who
mends a checkpoint one error at a time fetches it again for each.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from solutions.config import Config, json_file
from solutions.safetensors_file import read_safetensors

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DERIVED = "rotary_emb.inv_freq"  # in old checkpoints; computed from rope_theta instead
HEAD = "lm_head.weight"


def expected_tensors(config: Config) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a Llama model, as Hugging Face stores it.

    With E hidden_size, F intermediate_size, V vocab_size, D head_dim, H query heads and KV
    key/value heads; a matrix is [out, in]:

        model.embed_tokens.weight                            [V, E]
        model.layers.{i}.input_layernorm.weight              [E]        i = 0 .. layers - 1
        model.layers.{i}.self_attn.q_proj.weight             [H D, E]
        model.layers.{i}.self_attn.k_proj.weight             [KV D, E]
        model.layers.{i}.self_attn.v_proj.weight             [KV D, E]
        model.layers.{i}.self_attn.o_proj.weight             [E, H D]
        model.layers.{i}.post_attention_layernorm.weight     [E]
        model.layers.{i}.mlp.gate_proj.weight                [F, E]
        model.layers.{i}.mlp.up_proj.weight                  [F, E]
        model.layers.{i}.mlp.down_proj.weight                [E, F]
        model.norm.weight                                    [E]
        lm_head.weight                                       [V, E]     only if not tied

    A tied head (tie_word_embeddings) is the embedding itself, so it is not in the list.

    Returns:
        {name: shape}, the shapes tuples of ints, in the order above, layer after layer.
    """
    # exercise 2.4
    shapes = {"model.embed_tokens": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        parts = _layer_tensors(config).items()
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts}
    shapes["model.norm"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden_size)
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _layer_tensors(config: Config) -> dict[str, tuple[int, ...]]:
    """The nine tensors of one layer, in the order in which they are used."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    shared = config.num_key_value_heads * config.head_dim
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


def weight_files(folder: str | Path) -> list[Path]:
    """The one file of weights, or every shard that the index names.

    Args:
        folder: of the checkpoint. If it has SINGLE, that is all and INDEX is not looked at, as in
            transformers. Else INDEX is a JSON file whose `weight_map` maps each tensor's name to
            the file that holds it.

    Returns:
        Paths in the folder, each once, in the order of their names.

    Errors: FileNotFoundError naming every shard that is not there; where neither SINGLE nor INDEX
    is there, naming both. ValueError, naming the index, when it is not JSON (`json_file` says so),
    or weight_map is not an object, is empty, or has a value that is not the name of a file beside
    it: text that ends in .safetensors, at most 255 bytes of UTF-8, without a slash, a backslash
    or a colon. Anything else could point out of the folder (as "C:x" does on Windows), or to a
    pickle, which runs code when it is opened.
    """
    # exercise 2.5
    folder = Path(folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} has neither {SINGLE} nor {INDEX}. Fetch the model.")
    names = sorted(set(_weight_map(folder / INDEX).values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}. Fetch the model again.")
    return [folder / name for name in names]


def read_checkpoint(folder: str | Path) -> dict[str, Tensor]:
    """Every tensor of a folder, from all its files, as `read_safetensors` gives them.

    With an index, that and the shards must agree exactly. Where they do not, the shards are of
    two versions or one was written while another failed, and which numbers are right nobody knows.

    Returns:
        {name: tensor}, file after file in the order of `weight_files`.

    Errors: those of `weight_files` and `read_safetensors`. ValueError, naming the folder and every
    tensor that is not in the file where the index puts it, and every one that is in a file where
    the index does not put it (with it, a tensor that two shards have), each with that file's name.
    """
    # exercise 2.5
    files = {path.name: read_safetensors(path) for path in weight_files(folder)}
    held = {(name, file) for file, tensors in files.items() for name in tensors}
    sharded = SINGLE not in files
    listed = set(_weight_map(Path(folder) / INDEX).items()) if sharded else held
    problems = [f"{name} is not in {file}, where the index puts it" for name, file in listed - held]
    problems += [f"{name} is in {file}, against the index" for name, file in held - listed]
    if problems:
        raise ValueError(f"the index and the shards of {folder} differ:{_lines(problems)}")
    return {name: tensor for tensors in files.values() for name, tensor in tensors.items()}


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name to file name. A name with a folder in it could point anywhere."""
    files = json_file(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(map(_is_plain_name, files.values())):
        raise ValueError(
            f"{index}: weight_map must map tensor names to names of .safetensors files beside it"
        )
    return files


def _is_plain_name(name: object) -> bool:
    """Whether this names a file of weights in the same folder, on any system."""
    if not isinstance(name, str) or len(name.encode("utf-8", "surrogatepass")) > 255:
        return False
    return name.endswith(".safetensors") and not set(name) & set("/\\:")


def match_tensors(found: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """The tensors that the config asks for, or one report of everything that is wrong.

    Args:
        found: all tensors of a checkpoint; only names, shapes and dtypes are looked at.
        config: of the model. Where it ties the head, a `lm_head.weight` that is in the file all the
            same is left out, since the embedding serves. Names that end in DERIVED are left out
            too: old files have a table there that is computed from rope_theta.

    Returns:
        {name: tensor}, the names and their order those of `expected_tensors`, each tensor the one
        that was given.

    Errors: one ValueError with a line for each tensor that is wrong, sorted by line:

        missing: NAME
        unexpected: NAME
        misshapen: NAME is SHAPE, expected SHAPE
        not floating point: NAME is DTYPE

    A tensor of another shape and of integers has the third line only.
    """
    # exercise 2.6
    expected = expected_tensors(config)
    left_out = [HEAD] if config.tie_word_embeddings else []
    found = {n: t for n, t in found.items() if n not in left_out and not n.endswith(DERIVED)}
    problems = [f"missing: {name}" for name in expected.keys() - found.keys()]
    problems += [f"unexpected: {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        problems += _faults(name, found[name], expected[name])
    if problems:
        raise ValueError(f"the tensors do not fit config.json:{_lines(problems)}")
    return {name: found[name] for name in expected}


def _faults(name: str, tensor: Tensor, shape: tuple[int, ...]) -> list[str]:
    """What is wrong with one tensor that is there: at most one line."""
    if tuple(tensor.shape) != shape:
        return [f"misshapen: {name} is {tuple(tensor.shape)}, expected {shape}"]
    return [] if tensor.is_floating_point() else [f"not floating point: {name} is {tensor.dtype}"]


def _lines(problems: Iterable[str]) -> str:
    """A line for each problem, indented, sorted."""
    return "".join(f"\n  {problem}" for problem in sorted(problems))


def stored_tensors(folder: str | Path, config: Config) -> dict[str, Tensor]:
    """The tensors of `expected_tensors` as they are stored: checked, but not yet read.

    Errors: those of `read_checkpoint` and `match_tensors`, naming the folder.
    """
    found = read_checkpoint(folder)
    try:
        return match_tensors(found, config)
    except ValueError as problem:
        raise ValueError(f"{folder}: {problem}") from None
