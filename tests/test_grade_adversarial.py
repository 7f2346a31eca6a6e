"""The grader attacked: an attack fails for its reason, the rest is graded, nothing changes."""

import hashlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
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


def test_honest_work_among_attacks_has_all_its_points(attacked):
    found = classroom.exercises(attacked.out, "honest.ipynb")
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


def test_the_network_is_out_of_reach(attacked, outside):
    if not is_confined(attacked):
        pytest.skip("this system lets nobody make namespaces")
    assert "raised ConnectionRefusedError" in reason(attacked, "calls_out")
    assert "raised OSError" in reason(attacked, "calls_far")
    assert outside.calls == []


def test_files_of_others_are_out_of_sight(attacked):
    if not is_confined(attacked):
        pytest.skip("this system lets nobody make namespaces")
    assert "raised FileNotFoundError" in reason(attacked, "writes_outside")


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


# ---- files ----


def zipped(*members, **options) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Files that attack whoever opens them, beside honest ones."""
    folder, out = tmp_path_factory.mktemp("odd"), tmp_path_factory.mktemp("odd_grades")
    good = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM)
    text = classroom.script(classroom.IMPORTS, classroom.RMS_NORM)
    link = zipfile.ZipInfo("link.ipynb")
    link.external_attr = 0o120777 << 16
    bomb = bytearray(zipped(("honest.ipynb", good), ("bomb.py", b"0" * 30_000_000)))
    lie = zipped(("lie.py", b"#" * 30_000_000)).replace(
        (30_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    )
    archives = {
        "climbs.zip": zipped(
            ("../../climbed.ipynb", good), ("/root.ipynb", good), ("ok.ipynb", good)
        ),
        "drives.zip": zipped(("C:\\x.ipynb", good), ("..\\x.ipynb", good), ("a.py", text)),
        "links.zip": zipped((link, "/etc/passwd"), ("ok.ipynb", good)),
        "bomb.zip": bytes(bomb),
        "lie.zip": lie,
        "nested.zip": zipped(("inner.zip", zipped(("a.ipynb", good))), ("ok.ipynb", good)),
        "broken.zip": b"PK\x03\x04 and then nothing of the kind",
        "many.zip": zipped(("ok.ipynb", good), *((f"{n}.py", "x = 1") for n in range(300))),
        "anna.zip": zipped(("work.ipynb", good)),
    }
    for name, data in archives.items():
        (folder / name).write_bytes(data)
    with (folder / "large.ipynb").open("wb") as file:
        file.truncate(100 * 2**20)
    (folder / "anna.ipynb").write_text(good, encoding="utf-8")
    (folder / "=cmd|' C'!A0.ipynb").write_text(good, encoding="utf-8")
    (folder / "-2+3.ipynb").write_text(good, encoding="utf-8")
    (folder / "Łukasz 名前.ipynb").write_text(good, encoding="utf-8")
    (folder / "linked.ipynb").symlink_to("/etc/passwd")
    (folder / "essay.docx").write_bytes(b"no")
    (folder / "empty.ipynb").write_bytes(b"")
    (folder / "deep.ipynb").write_text("[" * 100_000, encoding="utf-8")
    inner = folder / "folder of links"
    inner.mkdir()
    (inner / "out.ipynb").symlink_to(folder / "anna.ipynb")
    (inner / "loop").symlink_to(inner)
    os.mkfifo(inner / "pipe.py")
    before = {p.name for p in folder.parent.iterdir()}
    code = classroom.grade(folder, out, "--only", "4.1", "--jobs", "2")
    return SimpleNamespace(code=code, folder=folder, out=out, before=before)


@pytest.mark.parametrize(
    "name",
    [
        *("climbs.zip", "drives.zip", "links.zip", "bomb.zip", "nested.zip", "many.zip"),
        *("anna.zip", "anna.ipynb", "=cmd|' C'!A0.ipynb", "-2+3.ipynb", "Łukasz 名前.ipynb"),
    ],
)
def test_what_is_good_beside_an_attack_is_graded(odd, name):
    assert classroom.exercises(odd.out, name)["4.1"]["points"] == 8


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("climbs.zip", "../../climbed.ipynb is a name that leads out of the zip"),
        ("climbs.zip", "/root.ipynb is a name that leads out of the zip"),
        ("drives.zip", "C:/x.ipynb is a name that leads out of the zip"),
        ("drives.zip", "../x.ipynb is a name that leads out of the zip"),
        ("links.zip", "link.ipynb is a link"),
        ("bomb.zip", "bomb.py is 29 MiB large"),
        ("lie.zip", "lie.py cannot be read"),
        ("nested.zip", "inner.zip is a zip within a zip"),
        ("broken.zip", "broken.zip is no zip that can be read"),
        ("many.zip", "more than 200 files"),
        ("large.ipynb", "large.ipynb is 100 MiB large; the limit is 20 MiB"),
        ("empty.ipynb", "empty.ipynb is empty"),
        ("deep.ipynb", "deep.ipynb is not a notebook that can be read"),
        ("folder of links", "out.ipynb is a link or no ordinary file"),
        ("folder of links", "pipe.py is a link or no ordinary file"),
    ],
)
def test_a_file_that_attacks_is_named_and_left_out(odd, name, note):
    assert any(note in said for said in classroom.record(odd.out, name)["notes"])


def test_odd_files_are_no_failure_of_grading_and_leave_nothing(odd):
    assert odd.code == 0
    assert {p.name for p in odd.folder.parent.iterdir()} == odd.before
    summary = (odd.out / "summary.md").read_text(encoding="utf-8")
    assert "not graded: essay.docx" in summary
    assert "not graded: linked.ipynb: a link" in summary
    assert "perhaps one person's: anna.ipynb, anna.zip" in summary


def test_no_cell_of_a_table_begins_like_a_formula(odd):
    for name in ("long.csv", "wide.csv"):
        for row in classroom.rows(odd.out / name):
            assert not any(str(value).startswith(("=", "+", "-", "@")) for value in row.values())
    names = [row["submission"] for row in classroom.rows(odd.out / "wide.csv")]
    assert "'=cmd|' C'!A0.ipynb" in names
    assert "'-2+3.ipynb" in names
    assert "Łukasz 名前.ipynb" in names


def test_a_judge_that_dies_costs_one_exercise_and_is_said_aloud(tmp_path, capsys):
    """What no attack has managed, done to the judge by hand: it ends while it judges 4.1."""
    folder, out = tmp_path / "class", tmp_path / "grades"
    folder.mkdir()
    sheet = classroom.sheet(classroom.IMPORTS, classroom.RMS_NORM, classroom.FEED_FORWARD)
    (folder / "a.ipynb").write_text(sheet, encoding="utf-8")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    case = "from course.cases import case\nimport os\n\n@case('4.1')\ndef dies(learner, rng):\n"
    case += "    '''Nothing.'''\n    os._exit(9)\n"
    (hidden / "forward_pass.py").write_text(case, encoding="utf-8")
    code = classroom.grade(folder, out, "--only", "4.1", "4.4", "--hidden", str(hidden))
    assert code == 1
    assert "GRADING ITSELF FAILED for 1 exercise" in capsys.readouterr().err
    found = classroom.exercises(out, "a.ipynb")
    assert (found["4.1"]["status"], found["4.4"]["status"]) == ("grader error", "passed")
    assert "exit code 9" in found["4.1"]["reason"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_grading_leaves_nothing_and_goes_on(tmp_path, ending):
    """In the middle of an attack: exit code 130; the second run keeps what was done."""
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
    process.send_signal(ending)
    assert process.wait(60) == 130
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert list((tmp_path / "temporary").iterdir()) == []
    first = done.stat().st_mtime_ns
    again = subprocess.run([*command, "--only", "4.1"], cwd=ROOT, env=environment)
    assert again.returncode == 0
    assert classroom.exercises(out, "b.ipynb")["4.1"]["points"] == 8
    assert done.stat().st_mtime_ns >= first
