"""The process that runs a learner's code: requests come in on stdin, answers leave on a pipe.

Started by course/remote.py as `python -m course.worker`. It is thrown away after one exercise, so
nothing that the code did to its process (a patched library, a closed file) outlives it.
"""

import os

import torch

from course import share, wire
from course.runner import Runner


def main() -> None:
    """Answer until the judge closes the pipe."""
    torch.set_num_threads(1)  # small tensors; and the judge needs a core
    requests = os.fdopen(os.dup(0), "rb")  # the code under test may close 0 and 1: these are ours
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)  # what prints past sys.stdout cannot garble the answers
    runner = Runner()
    wire.send(answers, "ready")
    while True:
        try:
            request = wire.receive(requests)
        except EOFError:
            return
        _reply(answers, _handle(runner, request))


def _handle(runner: Runner, request: dict):
    if request["do"] == "open":
        return runner.open(request["path"], request["scenarios"])
    if request["do"] == "cell":
        return runner.run_cell(request["start"], request["end"])
    if request["do"] == "names":
        return runner.names()
    if request["do"] == "files":
        return share.receive(request)
    return runner.answer(request)


def _reply(answers, reply) -> None:
    try:
        wire.send(answers, reply)
    except BaseException as error:  # what cannot be sent is the learner's answer, not our failure
        wire.send(answers, {"unsendable": f"{type(error).__name__}: {str(error)[:300]}"})


if __name__ == "__main__":
    main()
