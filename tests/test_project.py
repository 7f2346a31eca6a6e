"""What must hold for the repository as a whole."""

import hashlib
import json
import re
import subprocess

import pytest

from course.manifest import SLUGS, chapters
from course.paths import ROOT

TEXTS = sorted(p for p in ROOT.glob("*.md")) + sorted(ROOT.glob("chapters/*/README.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8")
    return done.stdout.split("\n")


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for target, _ in LINK.findall(text):
        assert not target or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_placeholder_is_left(path):
    assert not re.search(r"@@|TODO|FIXME|lorem", path.read_text(encoding="utf-8"))


def test_the_map_shows_every_chapter_and_marks_the_open_ones():
    rows = re.findall(r"^\| (\d\d) \| (.+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(SLUGS)
    opened = {int(number) for number, rest in rows if "**open**" in rest}
    assert opened == {chapter.number for chapter in chapters()}
    for chapter in chapters():
        row = dict(rows)[f"{chapter.number:02d}"]
        stars = "●" * chapter.difficulty + "○" * (5 - chapter.difficulty)
        assert f"| {chapter.hours} | {stars} |" in row


def test_reference_files_are_those_that_were_recorded():
    folder = ROOT / "tests" / "reference"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    arrays = {p.name for p in folder.iterdir() if p.suffix in {".json", ".safetensors"}}
    assert set(manifest) == arrays - {"manifest.json"}
    for name, entry in manifest.items():
        data = (folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], name
        assert (folder / entry["made_by"]).exists()


def test_what_is_personal_or_large_is_not_tracked():
    if not (ROOT / ".git").exists():
        assert (ROOT / ".gitignore").exists()  # an archive without history: nothing to ask
        return
    names = tracked()
    assert not [n for n in names if n.startswith(("work/", "models/", ".venv/"))]
    large = [n for n in names if n and (ROOT / n).exists() and (ROOT / n).stat().st_size > 2**20]
    assert not large
