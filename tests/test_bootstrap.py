"""The set-up: a first run makes everything, later runs nothing, and nothing half-made is trusted.

The clones here are small: a copy of the set-up code, a command line that says where it runs, and a
hand-made wheel in place of the packages, so that pip works for real and without a network.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from course import bootstrap, chores, install
from course.paths import ROOT

SET_UP_CODE = (
    *("__init__", "__main__", "bootstrap", "install", "chores", "doctor", "machine", "lock"),
    "paths",
)
CLI = "import sys\ndef main(argv):\n    print('RAN', sys.prefix, argv)\n    return 7\n"
STAND_INS = {
    "ipykernel",
    "jupyterlab",
    "matplotlib",
    "numpy",
    "pytest",
    "safetensors",
    "tokenizers",
}


def make_wheel(folder: Path, name: str, modules: set[str]) -> str:
    """Write a wheel of empty modules; returns its file name."""
    wheel, info = f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {f"{module}.py": "" for module in modules}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / wheel, "w") as archive:
        for file, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(file, text)
    return wheel


def make_clone(root: Path) -> Path:
    """A fresh clone as the set-up sees it."""
    (root / "course").mkdir(parents=True)
    for name in SET_UP_CODE:
        shutil.copy(ROOT / "course" / f"{name}.py", root / "course")
    shutil.copytree(ROOT / "solutions", root / "solutions", ignore=shutil.ignore_patterns("__*__"))
    (root / "course" / "cli.py").write_text(CLI, encoding="utf-8")
    wheel = make_wheel(root, "standin", {"torch", *STAND_INS})
    (root / "requirements.txt").write_text(f"--no-index\n./{wheel}\n", encoding="utf-8")
    return root


def start(root: Path, *argv: str) -> subprocess.Popen:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("COURSE_", "PYTHON"))}
    return subprocess.Popen(
        [sys.executable, "-m", "course", *argv],
        cwd=root,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def run(root: Path, *argv: str) -> tuple[int, str, str]:
    process = start(root, *argv)
    out, err = process.communicate()
    return process.returncode, out, err


def log_time(root: Path) -> int:
    """When pip last ran here."""
    return (root / ".venv-install.log").stat().st_mtime_ns


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A clone after its first run; `made_copy` gives each test one of its own."""
    root = make_clone(tmp_path_factory.mktemp("made") / "clone")
    assert run(root, "progress")[0] == 7
    return root


@pytest.fixture
def made_copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "clone", symlinks=True)


@pytest.fixture
def unmade(tmp_path):
    return make_clone(tmp_path / "clone")


# --- whole runs ---------------------------------------------------------------------------------


def test_two_first_runs_at_once_make_one_environment(unmade):
    both = [start(unmade, "check", "4.2"), start(unmade, "hint", "4.2")]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [7, 7], outputs
    text = "".join(out for out, _ in outputs)
    assert text.count("Setting up .venv") == 1
    assert text.count(f"RAN {unmade / '.venv'} ") == 2
    log = (unmade / install.LOG).read_text(encoding="utf-8")
    assert "Successfully installed" in log, "the second run called pip again"
    assert "['check', '4.2']" in text
    assert "['hint', '4.2']" in text
    assert bootstrap.is_ready(unmade)


def test_a_second_run_needs_neither_pip_nor_the_packages_source(made_copy):
    for wheel in made_copy.glob("*.whl"):
        wheel.unlink()
    before = log_time(made_copy)
    code, out, err = run(made_copy, "generate", "two words")
    assert (code, err) == (7, "")
    assert out == f"RAN {made_copy / '.venv'} ['generate', 'two words']\n"
    assert log_time(made_copy) == before


def test_the_environments_python_imports_the_course_from_anywhere(made, tmp_path):
    command = [bootstrap.python_of(made), "-c", "import course; print(course.__file__)"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, encoding="utf-8")
    assert Path(done.stdout.strip()) == made / "course" / "__init__.py", done.stderr


def test_changed_requirements_update_the_environment_in_place(made_copy):
    wheel = make_wheel(made_copy, "another", {"another"})
    with (made_copy / "requirements.txt").open("a", encoding="utf-8") as file:
        file.write(f"./{wheel}\n")
    (made_copy / ".venv" / "sentinel").touch()
    assert run(made_copy, "progress")[0] == 7
    assert (made_copy / ".venv" / "sentinel").exists()
    python = bootstrap.python_of(made_copy)
    assert subprocess.run([python, "-c", "import another"], check=False).returncode == 0


@pytest.mark.parametrize("damage", ["no marker", "no python"])
def test_what_is_not_whole_is_made_anew(made_copy, damage):
    marker = made_copy / ".venv" / ".course-ready"
    (made_copy / ".venv" / "sentinel").touch()
    if damage == "no marker":
        marker.unlink()
    else:
        bootstrap.python_of(made_copy).unlink()
    code, out, _ = run(made_copy, "progress")
    assert code == 7
    assert "making it anew" in out
    assert not (made_copy / ".venv" / "sentinel").exists()


def test_a_failed_installation_is_explained_and_not_trusted(made_copy):
    good = (made_copy / "requirements.txt").read_text(encoding="utf-8")
    (made_copy / "requirements.txt").write_text("--no-index\nnowhere==1\n", encoding="utf-8")
    code, out, err = run(made_copy, "progress")
    assert code == 1
    assert "RAN" not in out
    assert "no build" in err
    assert "nowhere==1" in err
    assert str(made_copy / ".venv-install.log") in err
    assert "Traceback" not in err
    assert not bootstrap.is_ready(made_copy)
    # pip failed before it changed anything: what was whole before still is, for its own files
    (made_copy / "requirements.txt").write_text(good, encoding="utf-8")
    before = log_time(made_copy)
    assert run(made_copy, "progress")[0] == 7
    assert log_time(made_copy) == before


def test_a_failed_first_installation_is_not_trusted(unmade):
    (unmade / "requirements.txt").write_text("--no-index\nnowhere==1\n", encoding="utf-8")
    assert run(unmade, "progress")[0] == 1
    assert bootstrap.python_of(unmade).exists()
    assert bootstrap.marker_of(unmade) is None


def test_an_installation_that_broke_off_half_way_is_not_trusted(made_copy, monkeypatch):
    def half(root, python, requirements):
        (root / install.LOG).write_text("Installing collected packages: torch\n", encoding="utf-8")
        raise bootstrap.SetupError("the disk filled up")

    (made_copy / "requirements.txt").write_text("changed\n", encoding="utf-8")
    monkeypatch.setattr(install, "packages", half)
    with pytest.raises(bootstrap.SetupError, match="the disk filled up"):
        bootstrap.ensure(made_copy)
    assert bootstrap.marker_of(made_copy) is None


def test_packages_that_do_not_load_are_not_trusted(made_copy):
    code = "import pathlib, torch; print(pathlib.Path(torch.__file__))"
    found = subprocess.check_output([bootstrap.python_of(made_copy), "-c", code], encoding="utf-8")
    Path(found.strip()).write_text("raise OSError('libgomp.so.1: cannot open')", encoding="utf-8")
    with (made_copy / "requirements.txt").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    code, _, err = run(made_copy, "progress")
    assert code == 1
    assert "do not load (OSError: libgomp.so.1: cannot open)" in err
    assert not bootstrap.is_ready(made_copy)


# --- one failure at a time ----------------------------------------------------------------------


def test_ctrl_c_during_an_update_leaves_nothing_to_be_trusted(made_copy, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    (made_copy / "requirements.txt").write_text("changed\n", encoding="utf-8")
    monkeypatch.setattr(install, "packages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bootstrap.ensure(made_copy)
    assert bootstrap.marker_of(made_copy) is None


def test_no_room_is_said_before_anything_is_made(unmade, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 10**8))
    with pytest.raises(bootstrap.SetupError, match=r"about 3 GB .* has 0\.5 GB free"):
        bootstrap.ensure(unmade)
    assert not (unmade / ".venv").exists()


def test_a_python_without_venv_is_told_what_to_install(unmade, monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(bootstrap.SetupError, match=r"sudo apt install python3\.\d+-venv"):
        bootstrap.ensure(unmade)


def test_a_folder_that_cannot_be_written_is_named(unmade, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(bootstrap.SetupError, match="cannot be written") as caught:
        bootstrap.ensure(unmade)
    assert str(unmade) in str(caught.value)


def test_what_is_no_environment_is_not_removed(unmade):
    (unmade / ".venv").write_text("mine", encoding="utf-8")
    with pytest.raises(bootstrap.SetupError, match="remove it"):
        bootstrap.ensure(unmade)
    assert (unmade / ".venv").read_text(encoding="utf-8") == "mine"


def test_half_a_marker_is_no_marker(made_copy):
    marker = made_copy / ".venv" / ".course-ready"
    for text in (marker.read_text(encoding="utf-8")[:20], "[]", "{}", ""):
        marker.write_text(text, encoding="utf-8")
        assert bootstrap.marker_of(made_copy) is None


def test_the_base_python_gone_makes_the_environment_untrusted(made_copy):
    assert bootstrap.marker_of(made_copy) is not None
    settings = made_copy / ".venv" / "pyvenv.cfg"
    text = re.sub("(?m)^home = .*$", "home = /no/such/folder", settings.read_text("utf-8"))
    settings.write_text(text, encoding="utf-8")
    assert bootstrap.marker_of(made_copy) is None


def test_another_python_version_makes_the_environment_untrusted(made_copy, monkeypatch):
    monkeypatch.setattr(bootstrap, "inside", lambda root: True)
    assert bootstrap.marker_of(made_copy) is not None
    marker = made_copy / ".venv" / ".course-ready"
    changed = json.loads(marker.read_text(encoding="utf-8")) | {"python": "3.99"}
    marker.write_text(json.dumps(changed), encoding="utf-8")
    assert bootstrap.marker_of(made_copy) is None


def test_the_authors_packages_are_asked_for_only_by_the_authors_verbs(made_copy):
    shutil.copy(made_copy / "requirements.txt", made_copy / "requirements-dev.txt")
    assert bootstrap.is_ready(made_copy)
    assert not bootstrap.is_ready(made_copy, dev=True)
    code, out, _ = run(made_copy, "dev")
    assert (code, out.count("Ready:")) == (0, 1)
    assert bootstrap.is_ready(made_copy, dev=True)


def test_an_environment_that_does_not_take_effect_ends_instead_of_looping(monkeypatch):
    monkeypatch.setenv(bootstrap.RESTARTED, "1")
    with pytest.raises(bootstrap.SetupError, match="make clean"):
        bootstrap._restart(Path("python"), ["progress"])


def test_line_endings_do_not_change_the_digest(tmp_path):
    (tmp_path / "lf").write_bytes(b"torch==1\nnumpy==2\n")
    (tmp_path / "crlf").write_bytes(b"torch==1\r\nnumpy==2\r\n")
    (tmp_path / "other").write_bytes(b"torch==1\nnumpy==3\n")
    assert bootstrap.digest(tmp_path / "lf") == bootstrap.digest(tmp_path / "crlf")
    assert bootstrap.digest(tmp_path / "lf") != bootstrap.digest(tmp_path / "other")


def test_pins_are_read_from_the_requirements_file(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# a comment\ntorch==2.13.0\n\nnumpy==2.4.6\n", encoding="utf-8")
    assert bootstrap.read_pins(file) == {"torch": "2.13.0", "numpy": "2.4.6"}


def test_without_the_environment_the_packages_must_be_there(monkeypatch):
    monkeypatch.setattr(bootstrap, "read_pins", lambda path: {"no-such-package": "1"})
    monkeypatch.setenv("COURSE_NO_VENV", "1")
    with pytest.raises(bootstrap.SetupError, match="no-such-package is not installed here"):
        bootstrap._dispatch(["progress"])


# What pip 23 to 25 print, shortened in the middle.
OFFLINE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: Failed to
establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/
ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)
ERROR: No matching distribution found for torch==2.13.0
"""
NO_BUILD = """\
ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)
ERROR: No matching distribution found for torch==2.13.0
"""
FULL = """\
Installing collected packages: torch
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
"""
HASHES = "Collecting x\nERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (OFFLINE, "could not reach its package index (Temporary failure in name resolution)"),
        (NO_BUILD, "no build for Python"),
        (FULL, "The disk filled up"),
        (HASHES, "(THESE PACKAGES DO NOT MATCH THE HASHES)"),
        ("", "(no output)"),
    ],
)
def test_pips_failures_are_explained(output, said):
    sentence = install.explain(output)
    assert said in sentence
    assert sentence.endswith("then run the same command again.")


def test_clean_keeps_what_is_the_learners_and_what_was_fetched(made_copy):
    kept = [made_copy / "work" / "04.ipynb", made_copy / "models" / "m.safetensors"]
    for file in kept:
        file.parent.mkdir()
        file.touch()
    assert chores.clean(made_copy, []) == 0
    assert not (made_copy / ".venv").exists()
    assert not list(made_copy.glob("course/**/__pycache__"))
    assert all(file.exists() for file in kept)
    assert (made_copy / "course" / "bootstrap.py").exists()
