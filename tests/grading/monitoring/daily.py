"""8.4 DailyLog."""

from course.cases import Wrong, case, expect_equal
from tests.grading.forward_pass.driving import drive

DAY = 86_400.0
NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z


def session(learner, steps: list, name: str = "requests", keep=None, start: float = NOON) -> list:
    """Steps of a DailyLog: see log_session."""
    return drive(learner, "log_session", {"name": name, "keep": keep, "start": start}, steps)


@case("8.4")
def log_lines(learner, rng):
    """Each record is one line, with the time in front; the file is named after the day."""
    number = rng.randrange(1000)
    steps = [["write", {"n": number}], ["clock", NOON + 61.25], ["write", {"c": True, "b": None}]]
    found = session(learner, [*steps, ["files"], ["lines", "requests-2026-11-30.jsonl"], ["lost"]])
    expect_equal(found[0], True, "what write returned")
    expect_equal(found[3], ["requests-2026-11-30.jsonl"], "the files")
    expected = [
        {"at": "2026-11-30T12:00:00.000Z", "n": number},
        {"at": "2026-11-30T12:01:01.250Z", "c": True, "b": None},
        "",
    ]
    expect_equal(found[4], expected, "the lines of the file")
    expect_equal([list(line) for line in found[4][:2]], [["at", "n"], ["at", "c", "b"]], "the keys")
    expect_equal(found[5], 0, "lost")


@case("8.4")
def log_of_any_text(learner, rng):
    """Line ends, other alphabets, half characters: still one line of ASCII, and read back equal."""
    texts = ["two\nlines\r\n", "Größe 日本 🙂", "a\u2028b\x00", 'quote " and \\', "half \ud83d"]
    rng.shuffle(texts)
    steps = [["write", {"text": text, "in": [text, {"deep": text}]}] for text in texts]
    found = session(learner, [*steps, ["lines", "requests-2026-11-30.jsonl"]])
    expect_equal(found[:5], [True] * 5, "what write returned")
    told = [
        [line["text"], line["in"]] if isinstance(line, dict) else line for line in found[-1][:-1]
    ]
    expect_equal(told, [[text, [text, {"deep": text}]] for text in texts], "what was read back")


@case("8.4")
def log_of_no_numbers(learner, rng):
    """Infinity and NaN, at any depth, become null: JSON has no other word for them."""
    nan, inf = float("nan"), float("inf")
    record = {"a": nan, "b": [1.5, -inf, {"c": inf, "d": (nan, 2)}], "e": 3}
    found = session(learner, [["write", record], ["lines", "requests-2026-11-30.jsonl"]])
    expected = {"a": None, "b": [1.5, None, {"c": None, "d": [None, 2]}], "e": 3}
    line = found[1][0]
    if not isinstance(line, dict):
        raise Wrong(f"the line is no strict JSON: {line!r}")
    expect_equal({key: line.get(key) for key in expected}, expected, "what was read back")


@case("8.4")
def log_of_each_day(learner, rng):
    """A new file begins with the first line after midnight UTC, wherever the program runs; a clock
    that is set back goes on with the file of the day before.
    """
    midnight = NOON + DAY / 2
    steps = [["clock", midnight - 0.001], ["write", {"n": 1}], ["clock", midnight]]
    steps += [["write", {"n": 2}], ["clock", midnight + 3600], ["write", {"n": 3}], ["files"]]
    steps += [["clock", midnight - 1], ["write", {"n": 4}]]
    steps += [["lines", "requests-2026-11-30.jsonl"], ["lines", "requests-2026-12-01.jsonl"]]
    found = session(learner, steps)
    expect_equal(found[6], ["requests-2026-11-30.jsonl", "requests-2026-12-01.jsonl"], "the files")
    expect_equal(numbers(found[9]), [1, 4], "what the file of the first day holds")
    expect_equal(numbers(found[10]), [2, 3], "what the file of the second day holds")


def numbers(lines: list) -> list:
    """n of each line that is whole."""
    return [line["n"] if isinstance(line, dict) else line for line in lines[:-1]]


@case("8.4")
def log_keeps_a_week(learner, rng):
    """Seven files stay, the newest; files of others stay too."""
    others = ["errors-2020-01-01.jsonl", "requests-old.jsonl", "requests-2020-01-01.jsonl.gz"]
    others += ["my-requests-2020-01-01.jsonl", "requests-2020-01-01-jsonl"]
    steps = [["plant", name, "kept\n"] for name in others]
    for day in range(10):
        steps += [["clock", NOON + day * DAY], ["write", {"n": day}]]
    found = session(learner, [*steps, ["files"]])
    days = ["2026-12-03", "2026-12-04", "2026-12-05", "2026-12-06", "2026-12-07"]
    days += ["2026-12-08", "2026-12-09"]
    expected = sorted([*others, *(f"requests-{day}.jsonl" for day in days)])
    expect_equal(found[-1], expected, "the files after ten days")


@case("8.4")
def log_keeps_what_it_is_told(learner, rng):
    """keep is how many stay, also of those that were there before; the open one always does."""
    keep = rng.choice([1, 2, 3])
    old = [f"requests-2026-11-{day}.jsonl" for day in ("20", "21", "22")]
    steps = [["plant", name, "{}\n"] for name in old]
    found = session(learner, [*steps, ["write", {"n": 1}], ["files"]], keep=keep)
    expected = [*old, "requests-2026-11-30.jsonl"][-keep:]
    expect_equal(found[-1], expected, f"the files with keep={keep}")
    newer = [f"requests-2027-01-0{day}.jsonl" for day in range(1, 6)]
    steps = [["plant", name, "{}\n"] for name in newer]
    found = session(
        learner,
        [*steps, ["write", {"n": 1}], ["files"], ["lines", "requests-2026-11-30.jsonl"]],
        keep=keep,
    )
    kept = newer[len(newer) - keep + 1 :]
    expect_equal(found[-2], ["requests-2026-11-30.jsonl", *kept], "the files, the clock set back")
    expect_equal(numbers(found[-1]), [1], "what the open one holds")


@case("8.4")
def log_beside_what_stays(learner, rng):
    """An old file that cannot be deleted stays, and costs no line; the other old ones go."""
    old = [f"requests-2026-11-{day}.jsonl" for day in ("20", "21", "22")]
    stays = rng.choice(old[:2])
    steps = [["block" if name == stays else "plant", name, "{}\n"] for name in old]
    steps += [["write", {"n": 1}], ["lost"], ["files"], ["unblock", stays]]
    found = session(learner, steps, keep=2)
    expect_equal(found[3:5], [True, 0], "[write, lost] beside a file that cannot be deleted")
    expected = sorted([stays, old[2], "requests-2026-11-30.jsonl"])
    expect_equal(found[5], expected, "the files")


@case("8.4")
def log_goes_on(learner, rng):
    """What is in the file of the day already stays, after a restart as after close."""
    name = "requests-2026-11-30.jsonl"
    steps = [["plant", name, '{"n": 1}\n'], ["write", {"n": 2}], ["close"], ["write", {"n": 3}]]
    found = session(learner, [*steps, ["close"], ["close"], ["lines", name]])
    expect_equal(numbers(found[-1]), [1, 2, 3], "the lines")


@case("8.4")
def log_after_a_crash(learner, rng):
    """A last line that was cut off does not spoil the next; an empty file gets no empty line."""
    name = "requests-2026-11-30.jsonl"
    cut = rng.choice(['{"n": 1', '{"at": "2026-11-30T11', "x"])
    found = session(
        learner,
        [
            ["plant", name, f'{{"n": 0}}\n{cut}'],
            ["write", {"n": 2}],
            ["write", {"n": 3}],
            ["lines", name],
        ],
    )
    expect_equal(numbers(found[-1]), [0, cut, 2, 3], "the lines")
    found = session(learner, [["plant", name, ""], ["write", {"n": 2}], ["lines", name]])
    expect_equal(numbers(found[-1]), [2], "the lines of a file that was empty")


@case("8.4")
def log_that_cannot_be_written(learner, rng):
    """When the system refuses, write returns False and counts; it raises nothing, and tries again
    each time.
    """
    name = "requests-2026-11-30.jsonl"
    count = rng.randrange(2, 5)
    steps = [["block", name], *[["write", {"n": n}] for n in range(count)], ["lost"]]
    steps += [["unblock", name], ["write", {"n": 99}], ["lost"], ["lines", name]]
    found = session(learner, steps)
    expect_equal(found[1 : count + 2], [False] * count + [count], "write, write, ..., lost")
    expect_equal(found[count + 3 : -1], [True, count], "write and lost, once there is room")
    expect_equal(numbers(found[-1]), [99], "the lines")


@case("8.4")
def log_on_a_full_disk(learner, rng):
    """Of a line that does not fit the disk takes a part: the line is lost, and spoils no other."""
    for room in (0, rng.randrange(5, 30)):
        found = drive(learner, "log_on_a_full_disk", room)
        if found is None:  # this system cannot be given a full disk
            return
        expected = {"wrote": [True, False, True], "lost": 1, "whole": [1, 3]}
        expect_equal(found, expected, f"three writes, of the second {room} bytes fit,")


@case("8.4")
def log_of_a_bad_day(learner, rng):
    """A day whose file cannot be opened does not end up in the file of the day before."""
    steps = [["write", {"n": 1}], ["block", "requests-2026-12-01.jsonl"], ["clock", NOON + DAY]]
    steps += [["write", {"n": 2}], ["lost"], ["lines", "requests-2026-11-30.jsonl"]]
    found = session(learner, steps)
    expect_equal(found[3:5], [False, 1], "[write, lost]")
    expect_equal(numbers(found[-1]), [1], "the file of the day before")


@case("8.4")
def log_closes_its_files(learner, rng):
    """The file of yesterday is closed, and after close every file is."""
    found = drive(learner, "log_files_open", rng.randrange(3, 6))
    if found is None:  # this system does not say what is open
        return
    if found[0] > 1:
        raise Wrong(f"{found[0]} files are open after some days: close that of the day before")
    expect_equal(found[1], 0, "how many files are open after close")


@case("8.4")
def log_of_many_threads(learner, rng):
    """Lines of several threads never mix."""
    found = drive(learner, "log_raced", 6, 60)
    expect_equal(found, [360, 0, 0], "[whole lines, others, lost]")


@case("8.4")
def log_is_there_at_once(learner, rng):
    """A line is in the file when write returns, not when the log is closed."""
    found = drive(learner, "log_seen_at_once")
    expect_equal(found, [{"at": "1970-01-01T00:00:00.000Z", "a": 1}, ""], "the lines")
