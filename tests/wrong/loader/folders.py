"""2.3 the config, 2.4 expected_tensors, 2.5 shards, 2.6 match_tensors, 2.7 load_model."""

import torch

from tests.parts import part


@part("2.3")
def first_architecture_counts(m):
    """Of several architectures only the first is looked at."""
    right = m.check_architecture

    def check_architecture(raw):
        names = raw.get("architectures")
        right(raw | {"architectures": names[:1]} if isinstance(names, list) else raw)

    m.check_architecture = check_architecture


@part("2.3")
def scaling_by_its_factor(m):
    """Only a rope_scaling with a factor is scaled."""
    right = m.rope_base

    def rope_base(raw):
        rope = raw.get("rope_scaling")
        if isinstance(rope, dict) and "rope_theta" in rope and "rope_parameters" not in raw:
            return m.positive(rope, "rope_theta", 1e4)
        return right(raw)

    m.rope_base = rope_base


@part("2.3")
def base_as_it_is(m):
    """A base that is an int stays one."""
    right = m.rope_base
    m.rope_base = lambda raw: int(right(raw)) if right(raw) % 1 == 0 else right(raw)


@part("2.3")
def ends_sorted(m):
    """The end tokens are put in order."""
    right = m.end_tokens
    m.end_tokens = lambda raw, generation: tuple(sorted(right(raw, generation)))


@part("2.4")
def layers_as_text(m):
    """Layers are sorted as words, so that 10 comes before 2."""
    right = m.expected_tensors

    def expected_tensors(config):
        found = right(config)
        layers = sorted(n for n in found if n.startswith("model.layers."))
        order = sorted(layers, key=lambda n: n.split(".")[2])
        rest = [n for n in found if n not in layers]
        return {n: found[n] for n in [rest[0], *order, *rest[1:]]}

    m.expected_tensors = expected_tensors


@part("2.4")
def shapes_as_lists(m):
    """The shapes are lists."""
    right = m.expected_tensors
    m.expected_tensors = lambda config: {n: list(s) for n, s in right(config).items()}


@part("2.5")
def backslashes_accepted(m):
    """Only "/" is looked for in the names of the index."""
    m._is_plain_name = lambda n: (
        isinstance(n, str) and len(n) < 256 and n.endswith(".safetensors") and "/" not in n
    )


@part("2.5")
def pickles_accepted(m):
    """Any plain name will do, also model.bin."""
    m._is_plain_name = lambda n: (
        isinstance(n, str) and 0 < len(n) < 256 and not set(n) & set("/\\") and n != ".."
    )


@part("2.5")
def order_of_the_index(m):
    """The files come in the order in which the index names them."""
    right = m.weight_files

    def weight_files(folder):
        paths = right(folder)
        if paths[0].name == m.SINGLE:
            return paths
        names = dict.fromkeys(m._weight_map(m.Path(folder) / m.INDEX).values())
        return [m.Path(folder) / name for name in reversed(names)]

    m.weight_files = weight_files


@part("2.6")
def head_used_when_there(m):
    """A tied head that is in the file is given back as well."""
    right = m.match_tensors

    def match_tensors(found, config):
        head = {"lm_head.weight": found["lm_head.weight"]} if "lm_head.weight" in found else {}
        return right(found, config) | head

    m.match_tensors = match_tensors


@part("2.6")
def anything_with_inv_freq(m):
    """Whatever has rotary_emb in its name is left out."""
    m.DERIVED = ""
    right = m.match_tensors

    def match_tensors(found, config):
        m.DERIVED = "rotary_emb.inv_freq"
        return right({n: t for n, t in found.items() if "rotary_emb" not in n}, config)

    m.match_tensors = match_tensors


@part("2.6")
def head_looked_at(m):
    """A redundant head must have the shape of the embedding."""
    right = m.match_tensors

    def match_tensors(found, config):
        head = found.get("lm_head.weight")
        if head is not None and tuple(head.shape) != (config.vocab_size, config.hidden_size):
            raise ValueError(f"misshapen: lm_head.weight is {tuple(head.shape)}")
        return right(found, config)

    m.match_tensors = match_tensors


@part("2.7")
def all_at_once_and_copied(m):
    """Every tensor is cloned, and the clones are kept until the end."""
    right = m.stored_tensors

    def stored_tensors(folder, config):
        found = right(folder, config)
        m.kept = [{n: t.double() for n, t in found.items()}]
        return found

    m.stored_tensors = stored_tensors


@part("2.7")
def read_in_the_wrong_stage(m):
    """Pages are touched while the files are opened, and that is called instantiating."""
    right, touch = m.stored_tensors, m._touch

    def stored_tensors(folder, config):
        found = right(folder, config)
        for tensor in found.values():
            touch(tensor)
        return found

    m.stored_tensors = stored_tensors


@part("2.7")
def device_forgotten(m):
    """Everything stays on the CPU."""
    right = m.load_model

    def load_model(folder, dtype=torch.float32, device="cpu", **more):
        return right(folder, dtype, "cpu", **more)

    m.load_model = load_model


@part("2.7")
def progress_with_one_total(m):
    """total grows with done."""
    right = m.load_model

    def load_model(folder, dtype=torch.float32, device="cpu", progress=None, **more):
        told = None if progress is None else lambda done, total: progress(done, done)
        return right(folder, dtype, device, progress=told, **more)

    m.load_model = load_model
