"""The lock of one process at a time, whose file may go away with its holder."""

import subprocess
import sys
from pathlib import Path

import pytest

from course.lock import exclusive
from course.paths import ROOT

PROCESSES, TURNS = 4, 25
COUNT = """
import sys
from pathlib import Path
from course.lock import exclusive

folder = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with exclusive(folder / "lock", "waiting", keep=sys.argv[3] == "keep"):
        (folder / "inside").mkdir()  # fails where somebody is inside already
        number = int((folder / "number").read_text(encoding="utf-8"))
        (folder / "number").write_text(str(number + 1), encoding="utf-8")
        (folder / "inside").rmdir()
"""


@pytest.mark.parametrize("keep", ["keep", "remove"])
def test_nobody_is_inside_with_another(tmp_path: Path, keep: str):
    """Counted by several at once; with a removed file, a new lock could be taken beside the old."""
    (tmp_path / "number").write_text("0", encoding="utf-8")
    command = [sys.executable, "-c", COUNT, str(tmp_path), str(TURNS), keep]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(PROCESSES)
    ]
    assert [one.wait() for one in started] == [0] * PROCESSES
    assert (tmp_path / "number").read_text(encoding="utf-8") == str(PROCESSES * TURNS)
    assert (tmp_path / "lock").exists() is (keep == "keep")


def test_the_file_goes_where_the_block_fails(tmp_path: Path):
    with pytest.raises(RuntimeError), exclusive(tmp_path / "lock", "waiting", keep=False):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
def test_a_lock_whose_file_was_removed_is_not_taken(tmp_path: Path, monkeypatch, capsys):
    """The holder removes the file, and another makes a new one, before the waiting one has it."""
    path, tries = tmp_path / "lock", []

    def try_lock(handle) -> bool:
        tries.append(handle)
        if len(tries) == 1:
            path.unlink()
            path.write_text("of another", encoding="utf-8")
        return True

    monkeypatch.setattr("course.lock._try_lock", try_lock)
    with exclusive(path, "waiting", keep=False):
        assert len(tries) == 2
        assert tries[0].closed
    assert not path.exists()
