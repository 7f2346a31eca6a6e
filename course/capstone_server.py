"""`python -m course.capstone_server ARGUMENTS`: what `serve` does, for as long as stdin is open.

The capstone holds the other end: however it ends, its server ends too.
"""

import sys

from course import background, cli

if __name__ == "__main__":
    background.follow_stdin()
    sys.exit(cli.main(["serve", *sys.argv[1:]]))
