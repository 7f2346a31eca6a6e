"""The doctor: reports what is true, names the fix for what is not, and changes nothing."""

import os
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from course import bootstrap, doctor, model, paths


@pytest.fixture
def healthy(monkeypatch):
    """A machine on which every finding is good, so that a test can spoil one."""
    monkeypatch.setattr(bootstrap, "is_ready", lambda root, dev=False: True)
    monkeypatch.setattr(model, "is_complete", lambda folder: None)
    monkeypatch.setattr(doctor, "memory", lambda: doctor.Finding("memory", "16 GB"))
    usage = SimpleNamespace(total=10**12, used=0, free=10**11)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_a_healthy_machine_gets_zero_and_its_versions(healthy, capsys):
    assert doctor.main([]) == 0
    out = capsys.readouterr().out
    assert "All is well." in out
    assert "PROBLEM" not in out
    for name in doctor.PACKAGES:
        assert f"{name:12} {version(name)}\n" in out
    assert f"{os.cpu_count()} (" in out


def test_one_problem_gives_exit_code_one_and_its_fix(healthy, monkeypatch, capsys):
    monkeypatch.setattr(model, "is_complete", lambda folder: "model.safetensors is missing")
    assert doctor.main([]) == 1
    out = capsys.readouterr().out
    assert "PROBLEM  model        model.safetensors is missing\n" in out
    assert "To mend\n  model: type `make model` (or `python -m course model`)\n" in out


def test_before_the_set_up_it_answers_and_installs_nothing(tmp_path):
    root = tmp_path / "clone"
    (root / "course").mkdir(parents=True)
    for source in (paths.ROOT / "course").glob("*.py"):
        shutil.copy(source, root / "course")
    shutil.copy(paths.ROOT / "requirements.txt", root)
    before = sorted(root.iterdir())
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COURSE_")}
    # -S: no site-packages, so that no package is there, as on a fresh machine
    done = subprocess.run(
        [sys.executable, "-S", "-m", "course", "doctor"],
        cwd=root,
        env=kept,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "is not there yet" in done.stdout
    assert "torch        not installed (the course uses 2.13.0)" in done.stdout
    assert "`make start`" in done.stdout
    assert sorted(root.iterdir()) == before


def test_a_fix_is_written_once_with_all_it_mends():
    findings = [
        doctor.Finding("a", "broken", "type x"),
        doctor.Finding("b", "fine"),
        doctor.Finding("c", "broken too", "type x"),
        doctor.Finding("d", "broken as well", "type y"),
    ]
    assert doctor.report(findings).splitlines()[-3:] == ["To mend", "  a, c: type x", "  d: type y"]


def test_versions_are_compared_without_their_local_part(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: "2.13.0+cpu")
    assert doctor.package("torch", "2.13.0").fix == ""
    assert "but the course uses 2.14.0" in doctor.package("torch", "2.14.0").value
    assert doctor.package("torch", "2.14.0").fix


def test_too_little_disk_says_how_much_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap, "is_ready", lambda root, dev=False: False)
    monkeypatch.setattr(paths, "MODEL", tmp_path / "absent")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4 * 10**9))
    monkeypatch.delenv("COURSE_NO_VENV", raising=False)
    assert "4.2 GB needed" in doctor.disk().fix
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 10**9))
    assert doctor.disk().fix == ""


def test_too_little_memory_is_a_problem(monkeypatch):
    import psutil

    def with_available(amount):
        return lambda: SimpleNamespace(total=8 * 10**9, available=amount)

    monkeypatch.setattr(psutil, "virtual_memory", with_available(10**9))
    assert doctor.memory().value == "8.0 GB, 1.0 GB available"
    assert "close other programs" in doctor.memory().fix
    monkeypatch.setattr(psutil, "virtual_memory", with_available(4 * 10**9))
    assert doctor.memory().fix == ""


def test_a_torch_that_does_not_load_is_a_problem_not_a_crash(monkeypatch):
    def broken(name):
        raise OSError("libcudart.so: cannot open")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    found = doctor.device()
    assert found.value == "torch does not load: libcudart.so: cannot open"
    assert found.fix


def test_the_work_folder_is_examined_and_not_made(tmp_path, monkeypatch):
    found = doctor.work_folder(tmp_path / "a" / "work")
    assert (found.fix, list(tmp_path.iterdir())) == ("", [])

    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    found = doctor.work_folder(tmp_path / "work")
    assert "Permission denied" in found.value
    assert "COURSE_WORK" in found.fix


def test_a_taken_port_is_passed_over(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(doctor, "FIRST_PORT", taken.getsockname()[1])
        monkeypatch.setattr(doctor, "PORTS", 1)
        assert "--port" in doctor.port().fix
    assert doctor.port().fix == ""


def test_help_is_printed_and_nothing_examined(capsys):
    with pytest.raises(SystemExit) as ended:
        doctor.main(["--help"])
    assert ended.value.code == 0
    assert "Changes nothing" in capsys.readouterr().out
