"""Answers that attack the grader: the body of `feed_forward` (4.4), and what its verdict must say.

An adversary that returns a wrong value "differs"; what matters is that it gained nothing, that the
other exercise of the same submission is graded, and that nothing outside the sandbox has changed.
"""

import textwrap

from tests import adversaries_sandbox

WRONG = "has shape|differs|should be a tensor"  # judged like any wrong answer
TIME = "did not finish in time"
ENDED = "ended the Python process"

# name: (body of the function, what the reason must match)
BODIES = {
    **adversaries_sandbox.BODIES,
    "sys_exit": ("import sys; sys.exit(0)", "raised SystemExit"),
    "os_exit": ("import os; os._exit(0)", ENDED),
    "abort": ("import os; os.abort()", f"{ENDED} .by signal 6"),
    "segmentation_fault": ("import ctypes; ctypes.string_at(0)", f"{ENDED} .by signal 11"),
    "endless_loop": ("while True: pass", TIME),
    "long_sleep": ("import time; time.sleep(10**6)", TIME),
    "stops_itself": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", TIME),
    "ignores_signals": (
        """
        import signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        while True: pass
        """,
        TIME,
    ),
    "endless_recursion": ("return feed_forward(x, gate, up, down)", "raised RecursionError"),
    "all_memory": ("return bytearray(64 * 2**30)", "raised MemoryError"),
    "memory_bit_by_bit": (
        """
        kept = []
        while True:
            kept.append(bytearray(b'x') * 2**24)
        """,
        "raised MemoryError|more than the .* of memory",
    ),
    "memory_of_children": (
        """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                kept = bytearray(b'x') * (300 * 2**20)
                time.sleep(60)
        time.sleep(60)
        """,
        "more than the .* of memory",
    ),
    "fork_bomb": (
        """
        import os
        while True:
            os.fork()
        """,
        "more than the .* processes|more than the .* of memory|raised BlockingIOError",
    ),
    "both_after_a_fork_answer": ("import os; os.fork(); return x", f"{WRONG}|cannot be read"),
    "child_in_a_session_of_its_own": (
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        return x * 0
        """,
        WRONG,
    ),
    "threads_left_behind": (
        """
        import threading
        def spin():
            while True: pass
        for daemon in (True, False):
            threading.Thread(target=spin, daemon=daemon).start()
        return x * 0
        """,
        WRONG,
    ),
    "kills_everybody": (
        """
        import os, signal
        for target in (os.getppid(), 1, 0, -1):
            try:
                os.kill(target, signal.SIGKILL)
            except OSError:
                pass
        return x * 0
        """,
        f"{WRONG}|{ENDED}",
    ),
    "prints_megabytes": ("print('x' * 50_000_000); return x * 0", WRONG),
    "prints_past_python": (
        """
        import os
        for fd in (1, 2):
            os.write(fd, b'x' * 10_000_000)
        return x * 0
        """,
        WRONG,
    ),
    "terminal_and_markup": (
        "raise ValueError('\\x1b[2J<script>alert(1)</script>```\\n# Passed\\ud800|')",
        "raised ValueError",
    ),
    "huge_answer": ("return torch.zeros(2**27)", "what cannot be compared"),
    "huge_text": ("return 'x' * 2**26", "what cannot be compared"),
    "deep_answer": (
        """
        nested = []
        for _ in range(900):
            nested = [nested]
        return nested
        """,
        "cannot be read|what cannot be compared",
    ),
    "patches_the_comparison": (
        """
        import sys
        torch.equal = torch.allclose = lambda *args, **kwargs: True
        torch.Tensor.__eq__ = torch.Tensor.__ne__ = torch.Tensor.__le__ = lambda *args: True
        for module in list(sys.modules.values()):
            for name in ('expect_tensor', 'expect_equal', '_differ'):
                if hasattr(module, name):
                    setattr(module, name, lambda *args, **kwargs: None)
        return x * 0
        """,
        WRONG,
    ),
    "equal_to_everything": (
        """
        class Anything:
            shape, dtype = x.shape, x.dtype
            __eq__ = __le__ = __ge__ = lambda self, other: True
            __ne__ = lambda self, other: False
        return Anything()
        """,
        "should be a tensor, but is a Anything",
    ),
    "a_tensor_equal_to_everything": (
        """
        class Anything(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return True
        return (x * 0).as_subclass(Anything)
        """,
        f"{WRONG}|what cannot be compared",
    ),
    "not_a_number": ("return x * float('nan')", "not finite|has shape"),
    "broadcasts": ("return x[..., :1]", WRONG),
    "integers": ("return (x * 0).long()", "has dtype int64|has shape"),
    "looks_up_the_stack": (
        """
        import gc, sys
        frame = sys._getframe()
        while frame is not None:
            for name in ('expected', 'want', 'theirs'):
                if name in frame.f_locals:
                    return frame.f_locals[name]
            frame = frame.f_back
        for thing in gc.get_objects():
            if isinstance(thing, dict) and 'expected' in thing:
                return thing['expected']
        return x * 0
        """,
        WRONG,
    ),
    "skips": ("import pytest; pytest.skip('no time')", "raised Skipped"),
    "says_not_attempted_later": (
        "raise NotImplementedError('not on this machine')",
        "raised NotImplementedError",
    ),
    "imports_the_answer": (
        """
        import importlib
        return importlib.import_module('.'.join(['solutions', 'forward_pass'])).feed_forward(
            x, gate, up, down)
        """,
        "raised ModuleNotFoundError",
    ),
    "reads_the_answer": (
        """
        import pathlib, torch as t
        import tests.scenarios as s
        root = pathlib.Path(s.__file__).resolve().parents[2]
        exec((root / 'solutions' / 'forward_pass.py').read_text(), globals())
        return globals()['feed_forward'](x, gate, up, down)
        """,
        "imports the chapter's own solution|raised FileNotFoundError|raised ModuleNotFoundError",
    ),
    "finds_any_copy_of_the_answer": (
        """
        import os
        for place, folders, names in os.walk('/'):
            folders[:] = [f for f in folders if f not in ('proc', 'site-packages', 'lib', 'share')]
            if any(n.startswith('forward_pass') and n.endswith('.py') and 'scenarios' not in place
                   for n in names):
                raise LookupError(place)
            if '.git' in folders or 'misconceptions' in folders or 'styles' in folders:
                raise LookupError(place)
        return x * 0
        """,
        WRONG,
    ),
    "writes_wherever_it_can": (
        """
        import os
        for start in ('/', '/etc', '/usr/bin', '/root', '/home', '/var/tmp', os.getcwd()):
            for place, _, names in os.walk(start):
                if place.startswith(('/proc', '/tmp', '/dev')):
                    continue
                for name in [*names[:3], 'sown_by_an_attack']:
                    try:
                        with open(os.path.join(place, name), 'ab') as file:
                            file.write(b'sown_by_an_attack')
                    except OSError:
                        continue
                    raise LookupError('wrote ' + place)
                if place.count('/') > 6:
                    break
        return x * 0
        """,
        WRONG,
    ),
    "writes_to_the_grader": (
        """
        import sys
        for module in list(sys.modules.values()):
            path = getattr(module, '__file__', None) or ''
            if not path.startswith('/'):
                continue
            try:
                open(path, 'ab').write(b'sown_by_an_attack')
            except OSError:
                continue
            raise LookupError('wrote ' + path)
        return x * 0
        """,
        WRONG,
    ),
    "reads_another_learners_answer": (
        """
        import os
        folder = os.path.dirname(__file__)
        if len(os.listdir(folder)) > 1:
            raise LookupError(os.listdir(folder))
        return x * 0
        """,
        WRONG,
    ),
    "goes_through_process_1": (
        """
        import os
        for name in os.listdir('/proc/1/fd'):
            raise LookupError(os.readlink('/proc/1/fd/' + name))
        for link in ('root', 'cwd'):
            if os.path.realpath('/proc/1/' + link) != '/proc/1/' + link:
                if os.path.exists('/proc/1/' + link + '/home'):
                    raise LookupError(link)
        return x * 0
        """,
        f"{WRONG}|raised PermissionError",
    ),
    "fills_the_disk": (
        """
        with open('large', 'wb') as file:
            while True:
                file.write(b'x' * 2**24)
        """,
        f"raised OSError|{ENDED}",
    ),
    "becomes_root": (
        """
        import ctypes, os
        libc = ctypes.CDLL(None)
        gained = []
        for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chroot('/')):
            try:
                call()
                gained.append(1)
            except OSError:
                pass
        gained += [1] if libc.mount(b'none', b'/', None, 32 | 4096, None) == 0 else []
        gained += [1] if libc.umount2(b'/usr', 2) == 0 else []
        if gained:
            raise LookupError('gained')
        return x * 0
        """,
        WRONG,
    ),
    "leaves_files_open_and_closes_ours": (
        "import os; os.closerange(0, 1000); return x * 0",
        f"{WRONG}|{ENDED}",
    ),
    "forges_an_answer": (
        """
        import os, struct
        text = b'{"$": "dict", "items": [["value", {"$": "tensor", "dtype": "float32", '
        text += b'"shape": [1099511627776], "size": 0}], ["changed", []], ["printed", ""]]}'
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack('<II', len(text), 0) + text)
            except OSError:
                pass
        return x * 0
        """,
        "cannot be read",
    ),
    "forges_an_exception": (
        """
        import os, struct
        text = b'{"$": "dict", "items": [["printed", ""], ["raised", {"$": "raised", "type": "R", '
        text += b'"fields": {"kind": 3, "kinds": 4, "message": null, "line": "x"}}]]}'
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack('<II', len(text), 0) + text)
            except OSError:
                pass
        return x * 0
        """,
        "cannot be read",
    ),
    "floods_the_judge": (
        """
        import os, struct
        text = b'[' + b'0,' * 2_000_000 + b'0]'
        fds = []
        for fd in range(3, 64):
            try:
                os.write(fd, b'')
                fds.append(fd)
            except OSError:
                pass
        while True:
            for fd in fds:
                os.write(fd, struct.pack('<II', len(text), 0) + text)
        """,
        "cannot be read|did not finish",
    ),
    "announces_more_than_memory": (
        """
        import os, struct, time
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack('<II', 2**31, 2**31))
            except OSError:
                pass
        time.sleep(60)
        """,
        "cannot be read",
    ),
    "sends_with_another_send": (
        """
        import sys
        sys.modules['course.wire'].send = lambda stream, value: stream.write(b'passed') or None
        return x * 0
        """,
        TIME,
    ),
}

# The same at the top of a cell, where it runs before any check; the exercise alone may suffer.
TOPS = {
    **adversaries_sandbox.TOPS,
    "top_endless_loop": ("while True: pass", TIME),
    "top_os_exit": ("import os; os._exit(0)", ENDED),
    "top_syntax_error": ("def broken(:", "does not parse"),
    "top_import_error": ("import no_such_module", "does not run: it raised ModuleNotFoundError"),
    "top_raises": ("raise SystemExit(0)", "does not run: it raised SystemExit"),
    "top_deep_source": ("x = " + "(" * 2000 + ")" * 2000, "does not parse"),
    "top_long_source": ("x = '" + "y" * 2_000_000 + "'", "characters long"),
    "top_minus_signs": ("x = " + "-" * 100_000 + "1", "does not parse"),
    "top_dots": ("x = torch" + ".a" * 90_000, "does not parse|does not run"),
    "top_sum": ("x = 1" + "+1" * 90_000, "does not parse|does not run"),
}


def cell(body: str) -> str:
    """The cell of 4.4 with this body."""
    body = textwrap.dedent(body).strip("\n")
    code = textwrap.indent(body, "    ")
    head = "def feed_forward(x, gate, up, down, linear=None):"
    return f"#| exercise 4.4\nimport torch\n\n\n{head}\n{code}\n"


def top(code: str) -> str:
    """The cell of 4.4 as it was handed out in spirit, and then this at its top level."""
    return cell("return x * 0") + "\n\n" + code + "\n"
