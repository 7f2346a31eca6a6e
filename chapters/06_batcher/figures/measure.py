"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/06_batcher/figures/measure.py            print, change nothing
    python chapters/06_batcher/figures/measure.py --write    also figures/*.svg and README.md

The cells are those of notebook.py; the engine is the one in solutions/. Two results take too long
for a notebook and come from here, with all layers of the model: static against continuous in
seconds, and a prompt of 5,000 tokens among short ones. Both take some minutes.
Run it while the machine does nothing else.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from measure_kit import cells, engine, main


def all_layers() -> dict[str, str]:
    """The two results that need the whole model and minutes."""
    tools = notebook_tools()
    return {
        "all layers, in seconds": in_seconds(tools),
        "5,000 tokens, all layers": long_prompt(tools),
    }


def notebook_tools() -> dict:
    """What the notebook defines, without running its experiments."""
    from course.manifest import find_chapter

    chapter = find_chapter(6)
    namespace = engine(chapter).__dict__
    for source in cells(chapter.folder / "notebook.py"):
        if not source.startswith("# Experiment"):
            exec(compile(source, "cell", "exec"), namespace)
    return namespace


def in_seconds(tools: dict) -> str:
    """128 answers with a heavy tail on 8 rows: one batch after the other, then the batcher."""
    model, prompt = tools["model"], tools["asked"]("What is the capital of France?")
    lengths = [min(200, max(1, n // 2)) for n in tools["lengths_of"]("heavy tail", 128)]
    began = time.perf_counter()
    forwards, *_ = tools["static_run"](model, prompt, lengths, 8)
    middle = time.perf_counter()
    steps, _ = tools["continuous_run"](model, prompt, lengths, 8)
    took = middle - began, time.perf_counter() - middle
    both = sum(bool(step.decode and step.prefill) for step in steps)
    return (
        f"{sum(lengths):,} tokens for 128 requests, the longest {max(lengths)}; 8 rows\n"
        f"static    : {forwards:5} forwards               {sum(lengths) / took[0]:6.1f} tokens/s\n"
        f"continuous: {len(steps) + both:5} forwards in {len(steps):4} steps "
        f"{sum(lengths) / took[1]:6.1f} tokens/s\n"
        f"ratio in steps {forwards / len(steps):.1f}, in seconds {took[0] / took[1]:.1f}\n"
    )


def long_prompt(tools: dict) -> str:
    """The crowd of the notebook with 5,000 tokens and the whole model."""
    lines = ["places a step  longest gap of five  first token of: a late short one  the long one"]
    for budget in (8192, 512, 128):
        told = tools["crowd"](budget, tools["model"], length=5000, after=1.0, most=300)
        first = f"{told['late']:31.1f} s {told['long']:11.1f} s"
        lines.append(f"{budget:13,} {told['gap']:18.1f} s {first}")
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main(6, all_layers)
