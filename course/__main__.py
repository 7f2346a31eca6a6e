"""`python -m course VERB`: the one entry, on every Python that can read this file.

Kept to syntax that Python 2.7 parses: whoever starts it with an old Python must get a sentence
that helps, not a SyntaxError. Everything newer is imported after the check.
"""

from __future__ import print_function

import subprocess
import sys

OLDEST = (3, 11)
CANDIDATES = ["python3.13", "python3.12", "python3.14", "python3.11", "python3", "python"]
if sys.platform == "win32":
    CANDIDATES.append("py")
WHERE_TO_GET_IT = {
    "darwin": "type `brew install python@3.12` or get it from https://www.python.org/downloads/",
    "win32": "type `winget install Python.Python.3.12`, open a new terminal",
}
ELSEWHERE = "install python3.12 with your package manager or from https://www.python.org/downloads/"


def is_new_enough(command):
    """Whether `command` runs and is a Python the course can use; a name on PATH may do neither."""
    code = "import sys; sys.exit(sys.version_info[:2] < %r)" % (OLDEST,)
    try:
        process = subprocess.Popen(
            [command, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        process.communicate()
    except (OSError, ValueError):
        return False
    return process.returncode == 0


def advice(version, arguments):
    """What someone whose Python is too old should read: one sentence, and what to type next."""
    needs = "This course needs Python %d.%d or newer, and this is Python %s (%s)." % (
        OLDEST + (version, sys.executable)
    )
    found = [command for command in CANDIDATES if is_new_enough(command)]
    if not found:
        return "%s No such Python is on your PATH: %s, then run the same command again." % (
            needs,
            WHERE_TO_GET_IT.get(sys.platform, ELSEWHERE),
        )
    quoted = ['"%s"' % a if " " in a else a for a in arguments]
    line = " ".join([found[0], "-m", "course"] + quoted)
    others = "" if len(found) == 1 else " (also found: %s)" % ", ".join(found[1:])
    return "%s Type: %s%s" % (needs, line, others)


def main(arguments):
    """Refuse an old Python in plain words, or hand over to the set-up; returns the exit code."""
    if sys.version_info[:2] < OLDEST:
        print(advice(".".join(str(n) for n in sys.version_info[:3]), arguments), file=sys.stderr)
        return 1
    from course import bootstrap

    return bootstrap.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
