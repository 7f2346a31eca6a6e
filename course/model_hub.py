"""The official bf16 checkpoint from the Hugging Face Hub, at one revision, checked file by file."""

import re
import shutil
from pathlib import Path

from course.model_fetch import AGAIN, check_licence
from course.model_files import ModelError, write_manifest
from course.model_local import write_template
from solutions.integrity import sha256_file

REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
REVISION = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
CARD = "README.md"
# SHA-256 of each file at REVISION; the model card is read for the licence only.
FILES = {
    "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
    "generation_config.json": "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013",
    "model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
    "special_tokens_map.json": "2b7379f3ae813529281a5c602bc5a11c1d4e0a99107aaa597fe936c1e813ca52",
    "tokenizer.json": "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c",
    "tokenizer_config.json": "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df",
}


def fetch_hub(partial: Path, downloads: Path, revision: str = REVISION) -> None:
    """Fill `partial` from the Hub. What an interrupted download left in `downloads` is resumed.

    The hashes of another revision than the pinned one are recorded, but there is nothing to
    compare them with.
    """
    _download(downloads, revision)
    licence = check_licence(_card_licence(downloads / CARD), REPOSITORY)
    hashes = {name: sha256_file(downloads / name) for name in FILES if (downloads / name).is_file()}
    if revision == REVISION:
        _compare(hashes, downloads)
    for name in hashes:
        shutil.move(downloads / name, partial / name)
    hashes |= write_template(partial)
    source = f"Hugging Face Hub, {REPOSITORY}, revision {revision}"
    write_manifest(partial, {"source": source, "licence": licence}, hashes)
    shutil.rmtree(downloads, ignore_errors=True)


def _download(folder: Path, revision: str) -> None:
    """huggingface_hub raises many kinds of error; the user needs one sentence."""
    import huggingface_hub

    wanted = [CARD, *FILES]
    try:
        huggingface_hub.snapshot_download(
            REPOSITORY, revision=revision, local_dir=folder, allow_patterns=wanted
        )
    except Exception as problem:
        reason = next(iter(str(problem).splitlines()), "") or type(problem).__name__
        raise ModelError(
            f"{REPOSITORY} could not be fetched from the Hugging Face Hub ({reason}); check the "
            "network, then run the same command again, or leave out --source hub."
        ) from None


def _card_licence(card: Path) -> str | None:
    """The licence in the model card's front matter."""
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    front = re.match(r"---\n(.*?\n)---\n", text, re.DOTALL)
    line = re.search(r"^license:\s*(\S+)\s*$", front[1], re.MULTILINE) if front else None
    return line[1] if line else None


def _compare(hashes: dict[str, str], downloads: Path) -> None:
    """A file that is not the pinned one is deleted, so that the next run fetches it anew."""
    wrong = sorted(name for name, digest in FILES.items() if hashes.get(name) != digest)
    for name in wrong:
        (downloads / name).unlink(missing_ok=True)
    if wrong:
        raise ModelError(
            f"{', '.join(wrong)} from the Hub lacks the expected SHA-256 and was deleted; {AGAIN}."
        )
