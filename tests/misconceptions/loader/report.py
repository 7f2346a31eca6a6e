"""Wrong versions of 2.6 match_tensors."""

from course.misconceptions import misconception
from solutions.checkpoint import DERIVED, HEAD, _faults, _lines, expected_tensors


@misconception("2.6", "match_tensors")
def first_problem_only(found, config):
    """You raise at the first thing that is wrong. A person who mends a checkpoint one error at a
    time fetches it again for each: collect all lines, then raise once.
    """
    expected = expected_tensors(config)
    left_out = [HEAD] if config.tie_word_embeddings else []
    found = {n: t for n, t in found.items() if n not in left_out and not n.endswith(DERIVED)}
    for name, shape in expected.items():
        if name not in found:
            raise ValueError(f"missing: {name}")
        if faults := _faults(name, found[name], shape):
            raise ValueError(faults[0])
    for name in found:
        if name not in expected:
            raise ValueError(f"unexpected: {name}")
    return {name: found[name] for name in expected}


@misconception("2.6", "match_tensors")
def redundant_head_refused(found, config):
    """You call a tied head that is in the file all the same unexpected. Some programs write it: it
    is the embedding once more, and is left out.
    """
    expected = expected_tensors(config)
    found = {n: t for n, t in found.items() if not n.endswith(DERIVED)}
    problems = [f"missing: {name}" for name in expected.keys() - found.keys()]
    problems += [f"unexpected: {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        problems += _faults(name, found[name], expected[name])
    if problems:
        raise ValueError(f"the tensors do not fit config.json:{_lines(problems)}")
    return {name: found[name] for name in expected}


@misconception("2.6", "match_tensors")
def old_tables_refused(found, config):
    """You call the rotary tables of old files unexpected. Names that end in DERIVED are computed
    from rope_theta instead: leave them out.
    """
    expected = expected_tensors(config)
    left_out = [HEAD] if config.tie_word_embeddings else []
    found = {n: t for n, t in found.items() if n not in left_out}
    problems = [f"missing: {name}" for name in expected.keys() - found.keys()]
    problems += [f"unexpected: {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        problems += _faults(name, found[name], expected[name])
    if problems:
        raise ValueError(f"the tensors do not fit config.json:{_lines(problems)}")
    return {name: found[name] for name in expected}


@misconception("2.6", "match_tensors")
def strangers_ignored(found, config):
    """You do not report what is in the file and not expected. A bias or a thirty-first layer that
    nobody computes with makes another model: report it.
    """
    expected = expected_tensors(config)
    problems = [f"missing: {name}" for name in expected.keys() - found.keys()]
    for name in expected.keys() & found.keys():
        problems += _faults(name, found[name], expected[name])
    if problems:
        raise ValueError(f"the tensors do not fit config.json:{_lines(problems)}")
    return {name: found[name] for name in expected}


@misconception("2.6", "match_tensors")
def order_of_the_file(found, config):
    """Your tensors come in the order of the file. Their order is that of expected_tensors, whatever
    the file's is.
    """
    expected = expected_tensors(config)
    left_out = [HEAD] if config.tie_word_embeddings else []
    found = {n: t for n, t in found.items() if n not in left_out and not n.endswith(DERIVED)}
    problems = [f"missing: {name}" for name in expected.keys() - found.keys()]
    problems += [f"unexpected: {name}" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        problems += _faults(name, found[name], expected[name])
    if problems:
        raise ValueError(f"the tensors do not fit config.json:{_lines(problems)}")
    return found


@misconception("2.6", "_faults")
def as_many_numbers_are_enough(name, tensor, shape):
    """You compare how many numbers there are. A matrix and its transpose have as many, and are not
    the same: compare the shapes.
    """
    size = 1
    for length in shape:
        size *= length
    if tensor.numel() != size:
        return [f"misshapen: {name} is {tuple(tensor.shape)}, expected {shape}"]
    return [] if tensor.is_floating_point() else [f"not floating point: {name} is {tensor.dtype}"]


@misconception("2.6", "_faults")
def integers_accepted(name, tensor, shape):
    """You look at shapes only. A matrix of integers is a quantized one without its scales: report
    it as not floating point.
    """
    if tuple(tensor.shape) != shape:
        return [f"misshapen: {name} is {tuple(tensor.shape)}, expected {shape}"]
    return []
