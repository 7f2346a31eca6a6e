"""What is typed at a drill: lines that can be waited for, and stopped being waited for."""

import queue
import sys
import threading
import time

SOON = 0.5  # seconds after which the end of what is typed, if it is there, has been read


def lines() -> queue.Queue:
    """What is typed, line by line, and None at the end."""
    typed: queue.Queue = queue.Queue()
    threading.Thread(target=_read, args=[typed], daemon=True).start()
    return typed


def _read(typed: queue.Queue) -> None:
    try:
        if sys.stdin is not None:  # None: closed (`<&-`)
            sys.stdin.reconfigure(errors="replace")
            for line in sys.stdin:
                typed.put(line)
    finally:
        typed.put(None)


def nobody(typed: queue.Queue) -> bool:
    """Whether the end is there before anything was typed, as from /dev/null."""
    if sys.stdin is not None and sys.stdin.isatty():
        return False  # somebody sits there
    end = time.monotonic() + SOON
    while typed.empty() and time.monotonic() < end:
        time.sleep(0.01)
    return not typed.empty() and typed.queue[0] is None
