"""The layers of the service by name, and the words for those that cannot be put together."""

from collections.abc import Mapping, Sequence

from course import manifest
from course.manifest import Chapter
from course.passed import exercises_in
from course.submission import Submission, problem_with

CHAPTERS = range(2, 9)


class Refused(ValueError):
    """The learner's layers cannot be put together; the message says which, and what to do.

    Args:
        modules: those that would have to be ours.
    """

    def __init__(self, said: str, modules: Sequence[str] = ()):
        super().__init__(said)
        self.modules = tuple(modules)


# ---- Names ----


def layers() -> list[Chapter]:
    """The chapters whose modules make the service."""
    return [chapter for chapter in manifest.chapters() if chapter.number in CHAPTERS]


def modules_named(names: Sequence[str]) -> set[str]:
    """The modules that these names stand for: of whole chapters, or single ones.

    Errors: Refused for a name that is neither, with those that are.
    """
    found: set[str] = set()
    for name in names:
        chapters = [c for c in layers() if name in (c.slug, c.name, str(c.number))]
        modules = {module for chapter in layers() for module in chapter.modules}
        if chapters:
            found |= set(chapters[0].modules)
        elif name.removesuffix(".py") in modules:
            found.add(name.removesuffix(".py"))
        else:
            known = ", ".join(c.slug for c in layers())
            raise Refused(
                f"--reference {name[:40]!r} is no layer: it may be a chapter ({known}), or one of "
                f"{', '.join(sorted(modules - {c.slug for c in layers()}))}"
            )
    return found


# ---- What is wrong, and what to do ----


def told(problems: Mapping[str, ValueError]) -> list[str]:
    """By chapter, in order: what is wrong, and the way out that there always is."""
    return [
        f"{name}: {problem}. Or take ours: {_ways_out(name, getattr(problem, 'modules', ()))}"
        for name, problem in sorted(problems.items())
    ]


def _ways_out(name: str, modules: Sequence[str]) -> str:
    """The --reference to add, first for the modules alone, then for the whole chapter."""
    chapter = next(one for one in layers() if one.name == name)
    whole = f"--reference {chapter.slug}"
    if not modules or set(modules) == {m for m in chapter.modules if has_exercise(chapter, m)}:
        return whole
    alone = [f"--reference {m}.py" if m == chapter.slug else f"--reference {m}" for m in modules]
    return (
        f"{' '.join(alone)} for {' and '.join(f'{m}.py' for m in modules)} alone, "
        f"or {whole} for all of the chapter"
    )


def has_exercise(chapter: Chapter, module: str) -> bool:
    """Whether learners write something of a module."""
    return any(exercises_in(chapter, {module}))


def why_missing(submission: Submission, names: Sequence[str]) -> str:
    """Why the marked cells do not define these names; of cells that cannot be read, what `check`
    says of them.
    """
    about = [one for one in submission.chapter.exercises if set(one.functions) & set(names)]
    asked = about or submission.chapter.exercises[:1]  # any hears of the provided cells
    said = [found[1] for one in asked if (found := problem_with(submission, one.id))]
    if said:
        return f"{submission.shown_path}: " + "; ".join(dict.fromkeys(said))
    return (
        f"{submission.shown_path} does not define {', '.join(names)}: take the cell from a fresh "
        "copy of the chapter"
    )
