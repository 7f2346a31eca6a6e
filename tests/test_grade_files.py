"""Files that attack whoever opens them: named, left out, and nobody else's trouble."""

import io
import os
import zipfile
from types import SimpleNamespace

import pytest

from course import sandbox_linux
from tests import classroom

pytestmark = pytest.mark.skipif(
    not sandbox_linux.supported(), reason="links and pipes are made as Linux makes them"
)


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
