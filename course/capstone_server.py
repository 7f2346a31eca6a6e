"""`python -m course.capstone_server ARGUMENTS`: what `serve` does, for as long as stdin is open.

The capstone holds the other end: however it ends, its server ends too. A line on stdin asks where
the server stands; what it is made of is not told, since the capstone knows.
"""

import sys

from course import background, mine, mine_places

if __name__ == "__main__":
    background.follow_stdin(mine_places.tell)
    sys.exit(mine.serve(sys.argv[1:], is_told=False))
