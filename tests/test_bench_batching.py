"""benchmarks/batching.py: the workload is what it says, and both of ours do all of it."""

import statistics

import pytest

from benchmarks import batching, kit
from course.paths import ROOT
from tests.tiny_files import write_checkpoint


def test_the_workload_has_a_heavy_tail_and_is_the_same_every_time():
    work = batching.workload(1000, 4000)
    assert work == batching.workload(1000, 4000)
    assert abs(statistics.median(work.answers) - batching.MEDIAN) <= 1
    # P(answer > 64) of a lognormal: 1 - Phi(ln(64 / 16) / 1.25) = 0.134
    assert 0.11 < sum(count > 64 for count in work.answers) / 4000 < 0.16
    assert (min(work.answers), max(work.answers)) == (batching.SHORTEST, batching.LONGEST)
    assert {len(prompt) for prompt in work.prompts} == set(range(8, 49))
    assert all(100 <= token < 1000 for prompt in work.prompts for token in prompt)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict]:
    """Both of ours on a tiny model, in a process each, as the benchmark runs them."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_checkpoint(folder, max_position_embeddings=256)
    script = str(ROOT / "benchmarks" / "batching.py")
    names = ("continuous", "static")
    return {name: kit.child(script, "--child", name, str(folder), "20") for name in names}


def test_the_static_batches_compute_what_their_longest_answers_ask_for(found):
    work = batching.workload(300, 20)
    forwards = places = 0
    for batch in work.batches:
        forwards += max(batch.answers)
        width = max(map(len, batch.prompts))
        places += len(batch.prompts) * (width + max(batch.answers) - 1)
    useful = sum(map(len, work.prompts)) + sum(work.answers) - 20
    assert found["static"]["forwards"] == forwards
    assert found["static"]["useful"] == pytest.approx(useful / places)


def test_the_continuous_batch_wastes_less_and_needs_fewer_forwards(found):
    assert found["continuous"]["forwards"] < found["static"]["forwards"]
    assert found["continuous"]["useful"] > 0.8 > found["static"]["useful"]
    assert all(result["speed"] > 0 for result in found.values())
