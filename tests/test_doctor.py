"""The doctor: reports what is true, names the fix for what is not, and changes nothing."""

import os
import re
import shutil
import socket
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from course import bootstrap, doctor, machine, model, paths


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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_report_that_nobody_can_read_is_no_traceback():
    command = [sys.executable, "-m", "course", "doctor"]
    run = partial(subprocess.run, command, cwd=paths.ROOT, stderr=subprocess.PIPE, encoding="utf-8")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run(stdout=full)
    assert done.returncode == 1
    assert re.fullmatch(r"doctor: [^\n]*No space left on device[^\n]*\n", done.stderr)
    reader, writer = os.pipe()
    os.close(reader)
    done = run(stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_before_the_set_up_it_answers_and_installs_nothing(tmp_path):
    root = tmp_path / "clone"
    (root / "course").mkdir(parents=True)
    for source in (paths.ROOT / "course").glob("*.py"):
        shutil.copy(source, root / "course")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(paths.ROOT / "solutions", root / "solutions", ignore=ignored)
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
    assert "GB/s" in done.stdout
    assert "GPU driver" in done.stdout
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
    assert "loading needs 1.08 GB of RAM, twice the file" in doctor.memory().fix
    assert "weights and cache need 0.92 GB" in doctor.memory().fix
    assert "close other programs" in doctor.memory().fix
    monkeypatch.setattr(psutil, "virtual_memory", with_available(2_140_000_000))
    assert "loading" not in doctor.memory().fix  # 1.14 GB beside other programs, and 80 % of that
    assert "weights and cache need 0.92 GB" in doctor.memory().fix
    monkeypatch.setattr(psutil, "virtual_memory", with_available(2_150_000_000))
    assert doctor.memory().fix == ""
    assert "the model fits with all its 8,192 tokens" in doctor.memory().value


def test_the_plan_is_for_the_model_that_is_fetched():
    assert machine.weight_bytes(machine.SIZES) == 4 * 134_515_008  # as it is published


def test_the_memory_is_measured_and_the_speed_predicted(monkeypatch):
    read = []

    def measured(transfer, nbytes):
        read.append((transfer(), nbytes))
        return 16e9

    monkeypatch.setattr(machine, "bandwidth", measured)
    monkeypatch.setattr(machine, "BLOCK", 1000)
    expected = "one core reads 16.0 GB/s: 30 tokens/s from the model in float32"
    assert machine.memory_speed() == ("memory speed", expected, "")
    assert read == [(-1, 1000)]  # nothing found: every byte was read


@pytest.mark.parametrize("problem", [MemoryError(), ValueError("too few bytes")])
def test_a_memory_that_cannot_be_measured_is_no_crash(monkeypatch, problem):
    def fail(transfer, nbytes):
        raise problem

    monkeypatch.setattr(machine, "bandwidth", fail)
    found = machine.memory_speed()
    assert "not measured" in found.value
    assert found.fix == ""


TABLE = """
| NVIDIA-SMI 535.86.10    Driver Version: 535.86.10    CUDA Version: {cuda} |
|   0  Tesla T4            Off  | 00000000:00:04.0 Off |                    0 |
| N/A   44C    P8     9W /  70W |    105MiB / 15360MiB |      0%      Default |
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            TABLE.format(cuda="12.8"),
            "535.86.10, CUDA 12.8; torch's build for CUDA 12.6 would use it; Tesla T4 (16.1 GB)",
        ),
        (TABLE.format(cuda="12.2"), "available are 12.6, 12.9, 13.0, 13.2"),
        (
            TABLE.format(cuda="13.0").replace("Driver Version: 535.86.10", "Driver Version: N/A"),
            "there, CUDA 13.0; torch's build for CUDA 13.0 would use it; Tesla T4 (16.1 GB)",
        ),
        (TABLE.format(cuda="N/A"), "535.86.10, CUDA unknown; Tesla T4 (16.1 GB)"),
        (
            TABLE.format(cuda="13.1").replace("15360MiB", "ERR!"),
            "for CUDA 13.0 would use it; Tesla",
        ),
        ("No devices were found", "there, CUDA unknown; no GPU"),
        ("NVIDIA-SMI has failed because", "it says: NVIDIA-SMI has failed because; the course"),
        ("", "it says: nothing; the course needs no GPU"),
    ],
)
def test_the_driver_is_read_and_never_a_problem(monkeypatch, said, expected):
    done = SimpleNamespace(stdout=b"", stderr=said.encode())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", lambda *args, **kwargs: done)
    found = machine.driver()
    assert expected in found.value
    assert found.fix == ""


@pytest.mark.parametrize("error", [OSError("exec format"), subprocess.TimeoutExpired("it", 20)])
def test_a_driver_that_does_not_answer_is_no_crash(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", fail)
    assert "the course needs no GPU" in machine.driver().value
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert machine.driver().value == "no nvidia-smi here; the course needs no GPU"


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


def test_the_disk_is_read_once_and_not_from_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "GGUF", tmp_path / "model.gguf")
    assert machine.disk_speed().value == "measured once the model is there"
    paths.GGUF.write_bytes(bytes(2_000_000))
    asked, forgotten = [], []

    def measured(transfer, nbytes, **counts):
        asked.append((transfer(), nbytes, counts))
        return 1.5e9

    monkeypatch.setattr(machine, "bandwidth", measured)
    monkeypatch.setattr(machine, "_forget", lambda path: forgotten.append(path) or True)
    assert machine.disk_speed() == ("disk speed", "reads 1.50 GB/s (2 MB)", "")
    assert asked == [(2_000_000, 2_000_000, {"warmup": 0, "repeats": 1})]
    assert forgotten == [paths.GGUF]
    monkeypatch.setattr(machine, "_forget", lambda path: False)
    assert "perhaps from the page cache" in machine.disk_speed().value


def test_a_disk_that_cannot_be_read_is_no_crash(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "GGUF", tmp_path / "model.gguf")
    paths.GGUF.touch()
    assert machine.disk_speed().value.startswith("not measured: ")  # an empty file has no speed
    assert machine.disk_speed().fix == ""
