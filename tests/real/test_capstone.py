"""The capstone: right layers pass every check, a wrong one fails the checks that are about it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from course.capstone_checks import CHECKS
from course.mine import layers
from course.paths import ROOT
from tests.learner_kit import make_styled_work, make_work

FAULTS = {  # misconception: the check that must fail, and the layer that it must name
    "stop_leaks": ("stop string", "stopping", "05_sampler.ipynb"),
    "fetched_once": ("results", "results", "07_server.ipynb"),
    "every_token_is_a_first": ("metrics", "metrics", "08_monitoring.ipynb"),
    "empty_once_is_empty_now": ("drain", "lifecycle", "07_server.ipynb"),
}


def capstone(folder, *argv) -> subprocess.CompletedProcess:
    environment = {**os.environ, "COURSE_WORK": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "course", "capstone", *argv],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=environment,
        check=False,
    )


def passed(text: str) -> set[str]:
    return {check.name for check in CHECKS if f"\npassed  {check.name:15}" in f"\n{text}"}


def test_right_layers_pass_every_check(tmp_path):
    run = capstone(make_work(tmp_path), "--name", "Ada")
    assert passed(run.stdout) == {check.name for check in CHECKS}, run.stdout + run.stderr
    assert run.returncode == 0
    assert f"{len(CHECKS)} of {len(CHECKS)} checks passed" in run.stdout
    assert "built by Ada" in run.stdout
    assert "7 of 7 chapters are all your own" in run.stdout
    assert run.stdout.count("SHA-256") == 8  # seven notebooks, and the module that joins the last


@pytest.mark.parametrize("which", [0, 1])
def test_right_layers_of_another_kind_pass_every_check(tmp_path, which):
    run = capstone(make_styled_work(tmp_path, which))
    assert passed(run.stdout) == {check.name for check in CHECKS}, run.stdout + run.stderr
    assert run.returncode == 0


def test_each_fault_fails_its_own_check_and_no_other(tmp_path):
    run = capstone(make_work(tmp_path, *FAULTS))
    failed = {check.name for check in CHECKS} - passed(run.stdout)
    assert failed == {name for name, _, _ in FAULTS.values()}, run.stdout + run.stderr
    assert run.returncode == 1
    words = " ".join(run.stdout.split())
    for name, layer, file in FAULTS.values():
        said = words.split(f"FAILED {name} ")[1].split(" passed ")[0].split(" FAILED ")[0]
        assert said.split("look at: ")[1].startswith(layer)
        assert file in said


def test_a_client_that_is_not_missed_is_found(tmp_path):
    run = capstone(make_work(tmp_path, "nobody_listens"), "--check", "disconnect")
    assert run.returncode == 1
    assert "6 left; 0 ended as cancelled" in run.stdout, run.stdout + run.stderr
    assert "look at: streaming" in run.stdout


def test_a_wrong_forward_pass_is_found_and_a_switch_back_mends_it(tmp_path):
    folder = make_work(tmp_path, "interleaved_pairs")
    some = [word for name in ("loading", "greedy tokens") for word in ("--check", name)]
    run = capstone(folder, *some)
    assert run.returncode == 1
    assert passed(run.stdout) == {"loading"}, run.stdout + run.stderr
    assert "forward_pass, kv_cache in" in " ".join(run.stdout.split())
    run = capstone(folder, *some, "--reference", "forward_pass")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "6 of 7 chapters are all your own" in run.stdout
    assert "forward_pass (reference)" in run.stdout


def _begin(folder) -> tuple[subprocess.Popen, psutil.Process]:
    """A capstone that has told of its first check, and its server."""
    run = subprocess.Popen(
        [sys.executable, "-m", "course", "capstone"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "COURSE_WORK": str(folder), "OMP_NUM_THREADS": "1"},
    )
    assert run.stdout.readline().startswith("passed  loading"), run.stderr.read()
    (server,) = psutil.Process(run.pid).children()
    return run, server


def test_however_it_ends_its_server_ends_too(tmp_path):
    run, server = _begin(make_work(tmp_path))
    run.kill()
    run.communicate()
    server.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="a signal of Ctrl-C alone does not exist there")
@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_whoever_stops_it_has_what_there_is(how, tmp_path):
    run, server = _begin(make_work(tmp_path))
    run.send_signal(getattr(signal, how))
    _, err = run.communicate()
    assert run.returncode == 130
    assert f"of {len(CHECKS)} checks, of which" in err
    assert "Traceback" not in err
    assert not server.is_running()


def test_what_is_not_begun_is_refused_before_anything_runs(tmp_path):
    run = capstone(tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith("capstone: these chapters")
    assert run.stdout == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_names_layers_that_there_are(check):
    modules = {module for chapter in layers() for module in chapter.modules}
    assert set(check.layers) <= modules
    assert check.promise.endswith(".")


def test_the_three_tests_come_first_by_name():
    assert [check.name for check in CHECKS[:3]] == ["loading", "one request", "many at once"]
