"""The process that runs a learner's code: requests come in on stdin, answers leave on a pipe.

Started by course/remote.py as `python -m course.worker`. It is thrown away after one exercise, so
nothing that the code did to its process (a patched library, a closed file) outlives it.
"""

import os
import sys

import torch

from course import wire
from course.runner import Runner


def main() -> None:
    """Answer until the judge closes the pipe."""
    torch.set_num_threads(1)  # small tensors; and the judge needs a core
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints past sys.stdout cannot garble the answers
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - lives as long as we do
    runner = Runner()
    wire.send(answers, "ready")
    while True:
        try:
            request = wire.receive(requests)
        except EOFError:
            return
        _reply(answers, _handle(runner, request))


def _handle(runner: Runner, request: dict) -> dict:
    if request["do"] == "load":
        return runner.load(request["path"], request["parts"], request["scenarios"])
    return runner.answer(request)


def _reply(answers, reply) -> None:
    try:
        wire.send(answers, reply)
    except Exception as error:  # what cannot be sent is the learner's answer, not our failure
        raised = wire.Raised("Unsendable", ["Unsendable", "Exception"], str(error)[:500])
        wire.send(answers, {"raised": raised, "printed": ""})


if __name__ == "__main__":
    main()
