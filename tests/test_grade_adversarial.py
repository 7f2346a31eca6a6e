"""The grader attacked: an attack fails for its reason, the rest is graded, nothing changes."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from course import sandbox_linux
from course.paths import ROOT
from tests import adversaries, classroom

pytestmark = pytest.mark.skipif(
    not sandbox_linux.supported(), reason="the sandbox needs Linux; elsewhere `grade` says so"
)
SECONDS = "5"
LIMITS = ("--seconds", SECONDS, "--memory", "600", "--only", "4.1", "4.4", "--jobs", "2")
ATTACKS = {
    **{name: (adversaries.cell(code), why) for name, (code, why) in adversaries.BODIES.items()},
    **{name: (adversaries.top(code), why) for name, (code, why) in adversaries.TOPS.items()},
}
SOWN = b"sown_by" + b"_an_attack"


@pytest.fixture(scope="module")
def outside():
    """Files that anybody may write, and a port that anybody may call: both must see nothing."""
    folder = Path(tempfile.mkdtemp(prefix="course-outside-", dir="/var/tmp"))
    for path in (folder, folder / "sub"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        (path / "file").write_text("as it was", encoding="utf-8")
        (path / "file").chmod(0o666)
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                try:
                    calls.append(server.accept()[1])
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        yield SimpleNamespace(folder=folder, port=server.getsockname()[1], calls=calls)
        stop.set()
        thread.join()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory, outside):
    """All attacks as one class, graded once."""
    folder, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("grades")
    for name, (cell, _) in ATTACKS.items():
        sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, cell)
        (folder / f"{name}.ipynb").write_text(sheet, encoding="utf-8")
    for name, body in (
        ("calls_out", f"import socket; socket.create_connection(('127.0.0.1', {outside.port}), 2)"),
        ("calls_far", "import socket; socket.create_connection(('192.0.2.1', 80), 2)"),
        ("looks_around", "import os; raise LookupError(repr(sorted(os.environ)))"),
        ("writes_outside", f"open({str(outside.folder / 'file')!r}, 'w').write('mine')"),
    ):
        sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, adversaries.cell(body))
        (folder / f"{name}.ipynb").write_text(sheet, encoding="utf-8")
    endless = "#| exercise 4.2\nwhile True: pass"
    many = (classroom.IMPORTS, classroom.RMS_NORM, *[endless] * 60, classroom.FEED_FORWARD)
    (folder / "many endless.ipynb").write_text(classroom.sheet(*many), encoding="utf-8")
    unmarked = "raise SystemExit('a cell without a mark ran')"
    sheet = classroom.sheet(classroom.IMPORTS, unmarked, classroom.RMS_NORM, classroom.FEED_FORWARD)
    (folder / "honest.ipynb").write_text(sheet, encoding="utf-8")
    own = tmp_path_factory.mktemp("temporary")
    before = hash_of(outside.folder), hash_of(folder), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_TEST_SECRET", "to be seen by nobody")
        patch.setattr(tempfile, "tempdir", str(own))
        code = classroom.grade(folder, out, *LIMITS)
    return SimpleNamespace(code=code, folder=folder, out=out, before=before, temporary=own)


def hash_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_mode}\0".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_fails_with_its_reason_and_the_rest_is_graded(attacked, name):
    found = classroom.exercises(attacked.out, f"{name}.ipynb")
    assert found["4.4"]["status"] in {"failed", "error"}
    assert found["4.4"]["points"] == 0
    assert re.search(ATTACKS[name][1], found["4.4"]["reason"]), found["4.4"]["reason"]
    assert (found["4.1"]["status"], found["4.1"]["points"]) == ("passed", 8)
    assert len(found["4.4"]["feedback"]) < 20_000


def test_grading_attacks_is_no_failure_of_grading(attacked):
    assert attacked.code == 0
    assert "grading itself failed" not in (attacked.out / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["honest.ipynb", "many endless.ipynb"])
def test_honest_work_among_attacks_has_all_its_points(attacked, name):
    found = classroom.exercises(attacked.out, name)
    assert [found[e]["points"] for e in ("4.1", "4.4")] == [8, 6]


def test_nothing_outside_the_sandbox_has_changed(attacked, outside):
    left = list(attacked.temporary.iterdir())
    assert (hash_of(outside.folder), hash_of(attacked.folder), left) == attacked.before
    places = [ROOT / name for name in ("course", "solutions", "tests", "chapters")]
    for path in [ROOT / "Makefile", *(p for place in places for p in place.rglob("*.py"))]:
        assert SOWN not in path.read_bytes() or path.name == "adversaries.py", path


def test_nothing_is_left_running(attacked):
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if "course.sandbox_server" in line or "course.grading.bench" in line:
            assert process.info["status"] == psutil.STATUS_ZOMBIE or not ours(process), line


def ours(process: psutil.Process) -> bool:
    """Whether it descends from this test; another test may be grading at the same time."""
    try:
        return os.getpid() in [parent.pid for parent in process.parents()]
    except psutil.NoSuchProcess:
        return False


def reason(attacked, name: str) -> str:
    return classroom.exercises(attacked.out, f"{name}.ipynb")["4.4"]["reason"]


def is_confined(attacked) -> bool:
    return "namespaces" in (attacked.out / "summary.md").read_text(encoding="utf-8")


def test_the_network_is_out_of_reach_or_said_to_be_open(attacked, outside):
    if not is_confined(attacked):
        assert "network is open" in promise(attacked) or "network are open" in promise(attacked)
        return
    assert "raised ConnectionRefusedError" in reason(attacked, "calls_out")
    assert "raised OSError" in reason(attacked, "calls_far")
    assert outside.calls == []


def test_files_of_others_are_out_of_sight_or_said_to_be_open(attacked):
    if not is_confined(attacked):
        assert re.search("files and network are open|so is every file", promise(attacked))
        return
    assert "raised FileNotFoundError" in reason(attacked, "writes_outside")
    assert "raised OSError" in reason(attacked, "files_without_end")


def promise(attacked) -> str:
    """The line of the summary that says what the sandbox was."""
    text = (attacked.out / "summary.md").read_text(encoding="utf-8")
    return re.search(r"^Sandbox: (.*)$", text, re.MULTILINE)[1]


def test_the_environment_tells_nothing_of_the_grader(attacked):
    assert "raised LookupError" in reason(attacked, "looks_around")
    assert "COURSE_TEST_SECRET" not in reason(attacked, "looks_around")


def test_markup_and_control_characters_stay_text(attacked):
    folder = attacked.out / "submissions" / "terminal_and_markup.ipynb"
    page = (folder / "feedback.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    text = (folder / "feedback.md").read_text(encoding="utf-8")
    assert "\x1b" not in text
    inside = text.split("## 4.4")[1]
    fence = re.search(r"^(`{3,})text$", inside, re.MULTILINE)[1]
    assert len(fence) > 3
    assert inside.count(f"\n{fence}\n") == 1


# ---- the end of a judge, and of grading ----


def test_a_judge_that_dies_costs_one_exercise_and_is_said_aloud(tmp_path, capsys):
    """What no attack has managed, done to the judge by hand: it ends while it judges 4.1."""
    folder, out = tmp_path / "class", tmp_path / "grades"
    folder.mkdir()
    sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, classroom.FEED_FORWARD)
    (folder / "a.ipynb").write_text(sheet, encoding="utf-8")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    case = "from course.cases import case\nimport os, sys\n\n@case('4.1')\n"
    case += "def dies(learner, rng):\n    '''Nothing.'''\n"
    case += "    'bench' in sys.argv[0] and os._exit(9)\n"  # not when it is tried before
    (hidden / "forward_pass.py").write_text(case, encoding="utf-8")
    code = classroom.grade(folder, out, "--only", "4.1", "4.4", "--hidden", str(hidden))
    assert code == 1
    assert "GRADING ITSELF FAILED for 1 exercise" in capsys.readouterr().err
    found = classroom.exercises(out, "a.ipynb")
    assert (found["4.1"]["status"], found["4.4"]["status"]) == ("grader error", "passed")
    assert "exit code 9" in found["4.1"]["reason"]


ENDINGS = {"SIGINT": 130, "SIGTERM": 130, "SIGHUP": 130, "SIGKILL": -signal.SIGKILL}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_interrupted_grading_leaves_nothing_and_goes_on(tmp_path, ending):
    """In the middle of an attack; the second run keeps what was done."""
    folder, out = tmp_path / "class", tmp_path / "grades"
    folder.mkdir()
    sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM)
    (folder / "a.ipynb").write_text(sheet, encoding="utf-8")
    endless = adversaries.cell("while True: pass")
    loop = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, endless)
    (folder / "b.ipynb").write_text(loop, encoding="utf-8")
    command = [sys.executable, "-m", "course", "grade", str(folder), str(out), "--seconds", "500"]
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"COURSE_NO_VENV": "1", "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen([*command, "--only", "4.1", "4.4"], cwd=ROOT, env=environment)
    done = out / "submissions" / "a.ipynb" / "grade.json"
    while not done.exists():
        assert process.poll() is None
        threading.Event().wait(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, ending))
    assert process.wait(60) == ENDINGS[ending]
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert list((tmp_path / "temporary").iterdir()) == []
    first = done.stat().st_mtime_ns
    again = subprocess.run([*command, "--only", "4.1"], cwd=ROOT, env=environment)
    assert again.returncode == 0
    assert classroom.exercises(out, "b.ipynb")["4.1"]["points"] == 8
    assert done.stat().st_mtime_ns >= first
