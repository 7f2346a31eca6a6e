"""Cases that no learner can know: the public ones on inputs drawn from a secret, and an
instructor's own from a folder outside the repository."""

import hashlib
import hmac
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course.cases import Case
from course.likely import reference_runner
from course.manifest import Chapter, Exercise
from course.trial import Local, run_cases

SHORTEST = 16  # bytes of a secret; fewer can be guessed
TRIED = 0  # the seed with which our own solutions are put through hidden cases


class SecretError(ValueError):
    """The secret or the folder of hidden cases cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Hidden:
    """What an instructor keeps to themselves."""

    secret: bytes = b""
    folder: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.secret or self.folder)

    def seed(self, exercise_id: str, submission_id: str) -> int:
        """The seed of one exercise of one submission: HMAC-SHA256 (RFC 2104), its first 48 bits.

        The same at every regrade, and not to be told from chance without the secret.
        """
        message = f"{exercise_id}\0{submission_id}".encode()
        digest = hmac.new(self.secret, message, hashlib.sha256).digest()
        return int.from_bytes(digest[:6], "big")

    def cases(self, chapter: Chapter, exercise: Exercise, public: list[Case]) -> list[Case]:
        """The public cases (on other inputs), where there is a secret, then those in the folder."""
        own = [c for c in _load(self.folder, chapter.slug) if c.exercise == exercise.id]
        return [*(public if self.secret else []), *own]

    def fingerprint(self) -> str:
        """Tells whether secret and hidden cases are what they were; reveals neither."""
        digest = hmac.new(self.secret, b"fingerprint", hashlib.sha256)
        for path in sorted(self.folder.glob("*.py")) if self.folder else []:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16] if self else ""


def read_secret(path: Path) -> bytes:
    """The secret in a file, without the newline at its end. Errors: SecretError."""
    try:
        secret = path.read_bytes().strip()
    except OSError as problem:
        raise SecretError(f"the secret {path} cannot be read ({problem.strerror})") from None
    if len(secret) < SHORTEST:
        raise SecretError(
            f"the secret in {path} has {len(secret)} bytes and needs {SHORTEST}: make one with "
            '`python -c "import secrets; print(secrets.token_hex(32))"`'
        )
    return secret


def check_folder(folder: Path, chapters: list[Chapter]) -> None:
    """Run all of a folder's hidden cases on our own solutions now: a fault in a case must not be
    taken for one of a learner's.

    Errors: SecretError, naming the file.
    """
    slugs = {chapter.slug: chapter for chapter in chapters}
    if not folder.is_dir():
        raise SecretError(f"there is no folder {folder} of hidden cases")
    files = sorted(folder.glob("*.py"))
    if not files:
        raise SecretError(f"{folder} holds no hidden cases: a file SLUG.py for each chapter")
    for path in files:
        if path.stem not in slugs:
            raise SecretError(f"{path} is named after no chapter; there are {', '.join(slugs)}")
        if not (cases := _load(folder, path.stem)):
            raise SecretError(f'{path} holds no function marked `@case("N.M")`')
        _try(path, slugs[path.stem], cases)


def _try(path: Path, chapter: Chapter, cases: list[Case]) -> None:
    """Each case is of an exercise of the chapter, and our solution passes it."""
    known = {exercise.id for exercise in chapter.exercises}
    if strange := [case for case in cases if case.exercise not in known]:
        raise SecretError(
            f"{path}: {strange[0].name} is marked {strange[0].exercise}, which is no "
            f"exercise of chapter {chapter.number}"
        )
    for outcome in run_cases(Local(reference_runner(chapter)), cases, TRIED):
        if outcome.error:
            raise SecretError(
                f"{path}: our own solution does not pass {outcome.case.name}: {outcome.error}"
            )


@cache
def _load(folder: Path | None, slug: str) -> list[Case]:
    path = folder / f"{slug}.py" if folder else None
    if path is None or not path.is_file():
        return []
    spec = importlib.util.spec_from_file_location(f"hidden_cases_{slug}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise SecretError(f"{path} does not run: {type(problem).__name__}: {problem}") from problem
    marked = [f for f in vars(module).values() if hasattr(f, "exercise") and callable(f)]
    return [Case(f.exercise, f.__name__, f) for f in marked if f.__module__ == module.__name__]
