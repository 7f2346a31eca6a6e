# %% [markdown]
# # 07 · The server
#
# A batcher serves whoever calls it from Python. The world calls over HTTP: with bodies that are
# wrong, faster than the machine computes, and it hangs up in the middle. You write what stands
# between: one loop that answers everybody, one thread that computes, and what crosses from one to
# the other.
#
# The reading is in `chapters/07_server/README.md`; its sections are named like the parts below.
# Cells that begin with `#| exercise` are yours to fill in. Run the cells from the top, in order.
# Stuck? `hint("7.1")` gets closer each time; `solution("7.1")` shows one answer.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# ## What you take from earlier chapters
#
# | name | what this chapter needs of it |
# |---|---|
# | `Batcher` | `idle`: `step` would do nothing; `submit(request)` raises where it refuses; `cancel(request)` takes effect with the next step; `step()` gives a `Step` and ends requests |
# | `Request` | `prompt`, `output`, `params`; `on_token(token)`, `on_finish(request)` are yours to set; `logprobs`: one for each token of `output`, the newest last, there before `on_token` is called; `finish_reason`: None, or one of stop, length, timeout, cancelled, error; `error`: the exception; `admitted`: a time, None as long as it waits |
# | `end(request, reason, error=None)` | finishes a request, then calls its `on_finish`; an exception of that is returned, not raised |
# | `Detokenizer` | `add(token)`: the text that it completes; `flush()`: what is left |
# | `StopMatcher` | `add(text)`: what may be shown; `flush()`: what was held back; `found`: the stop string, or None |
# | `TokenLogProbs` | `token`, `value`; `top`: {token: value} of the most probable ones |
# | `SamplingParams(**fields)` | a `ValueError` whose text begins with the name of the field |
# | `ApiError(status, message, param, code, retry_after)`, `ClientGone()` | given here, in `solutions/api_error.py` |
#
# `help(Batcher)` and its like show more. `end` runs no step: where the batcher's thread is gone, its
# books do not matter any more.
#
# ## The running example
#
# One request goes through the whole course: `What is the capital of France?`. Now it comes as the
# bytes of a JSON body. `few` is the same model cut off after 4 of its 30 layers: its answers are
# nonsense, its steps cost a fifth. `Blank` is no model at all. Both are for experiments in which
# the text does not matter.

# %%
import random
import textwrap
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import httpx
import matplotlib.pyplot as plt
import torch

# %%
from course import serve_http
from course.paths import MODEL
from course.text import Text
from solutions.api_request import CHAT, COMPLETION, HARMLESS, HONOURED, MAX_CHOICES, UNSUPPORTED
from solutions.app import create_app
from solutions.batcher import Limits
from solutions.chat import chat_ids
from solutions.events import Stepped
from solutions.forward_pass import Llama
from solutions.kv_cache import KVCache
from solutions.loader import load_weights, read_config
from solutions.sampling_params import SamplingParams
from solutions.service import Parts, Service
from solutions.settings import Settings
from solutions.waiting import QueueFull

# %%
text, config = Text(MODEL), read_config(MODEL)
weights = load_weights(MODEL, config)
model, few = Llama(config, weights), Llama(replace(config, num_hidden_layers=4), weights)
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes


# %%
QUESTION = "What is the capital of France?"


def run(coroutine):
    """What a coroutine returns. It gets a loop of its own: the notebook's is busy with this cell."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


class Blank:
    """A model that always says token 1 and costs nothing: good for counting steps."""

    def __init__(self):
        tiny = {"vocab_size": 8, "num_key_value_heads": 1, "head_dim": 2, "num_hidden_layers": 1}
        self.config, self.device = replace(config, **tiny), torch.device("cpu")

    def forward(self, tokens, positions, cache=None, rows=None):
        """Logits [B, V] with token 1 far ahead."""
        logits = torch.zeros(len(tokens), 8)
        logits[:, 1] = 9.0
        return logits


# %% [markdown]
# ## One loop, one thread
#
# An event loop is one thread that runs whatever is ready, one thing after the other. A coroutine
# that waits gives way. One that computes does not.
#
# **Predict.** A batch of eight takes about a tenth of a second a step. A ping arrives while a step
# is computed on the loop. How long does it wait? And if the model has a thread of its own?
# *Your answer:*


# %%
def at_work(rows, prompt=32, answer=400):
    """A batcher with so many requests: each step computes a token for all of them."""
    cache, limits = KVCache(config, rows, prompt + answer), Limits(step_tokens=128)
    batcher = Batcher(model, cache, limits=limits)
    for _ in range(rows):
        batcher.submit(Request([500] * prompt, SamplingParams(temperature=0, max_tokens=answer)))
    batcher.step()
    while any(request.state != "decode" for request in batcher.running.values()):
        batcher.step()  # the prompts
    return batcher


async def pings(compute, batcher=None, seconds=6.0):
    """How late a coroutine runs that is due every 20 ms, while something computes: (at, late)."""
    over, late, began = threading.Event(), [], time.perf_counter()
    work = asyncio.ensure_future(compute(over, batcher))
    while time.perf_counter() - began < seconds:
        due = time.perf_counter() + 0.02
        await asyncio.sleep(0.02)
        late.append((due - began, time.perf_counter() - due))
    over.set()
    await work
    return late


# %%
async def nothing(over, batcher):
    """Nobody computes."""


async def on_the_loop(over, batcher):
    """Steps are computed on the loop; after each, others have a turn."""
    while not over.is_set():
        batcher.step()
        await asyncio.sleep(0)


async def in_a_thread(over, batcher):
    """The same steps, in a thread."""

    def steps():
        while not over.is_set():
            batcher.step()

    await asyncio.to_thread(steps)


# %%
# Experiment: a ping while the model computes
late = {"nobody computes": run(pings(nothing))}
late["on the loop"] = run(pings(on_the_loop, at_work(8)))
late["in a thread"] = run(pings(in_a_thread, at_work(8)))
for label, found in late.items():
    waits = sorted(1000 * wait for _, wait in found)
    shown = f"half of them under {waits[len(waits) // 2]:5.1f} ms, the worst {waits[-1]:6.1f} ms"
    print(f"{label:16} {len(waits):4} pings, late: {shown}")

# %%
# Experiment: the plot of pings
fig, ax = plt.subplots(num="ping", figsize=(8, 3), layout="constrained")
for (label, found), (colour, mark) in zip(
    list(late.items())[1:], ((ORANGE, "o"), (BLUE, "^")), strict=True
):
    at, waits = zip(*found, strict=True)
    ax.semilogy(at, [max(1000 * w, 0.1) for w in waits], mark, color=colour, ms=4, label=label)
ax.set(xlabel="seconds", ylabel="a ping is late by (ms)")
fig.legend(loc="outside upper center", ncols=2)
plt.show()

# %% [markdown]
# The loop hears nothing while it computes. So the model gets a thread. Why not a thread for each
# request, then?
#
# **Predict.** Eight requests: in one batch on one thread, or each alone on a thread of its own.
# Which makes more tokens a second, and by how much? *Your answer:*


# %%
def tokens_per_second(threads, rows, seconds=2.5):
    """All threads together; each has a batcher of its own with so many requests."""
    batchers = [at_work(rows, prompt=8) for _ in range(threads)]
    counts, end = [0] * threads, time.perf_counter() + seconds

    def steps(n):
        while time.perf_counter() < end:
            batchers[n].step()
            counts[n] += rows

    workers = [threading.Thread(target=steps, args=(n,)) for n in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


# %%
# Experiment: threads against a batch
speeds = {}
for threads, rows in ((1, 1), (2, 1), (8, 1), (1, 8)):
    speeds[threads, rows] = tokens_per_second(threads, rows)
    shown = f"{threads} thread{'s' * (threads > 1)} with {rows} request{'s' * (rows > 1)} each"
    print(f"{shown:31} {speeds[threads, rows]:6.1f} tokens/s")

# %% [markdown]
# Threads share the cores and the memory that the weights are read from. A batch shares the reading
# itself. So there is one thread that computes, and everything else is a matter of what crosses.
#
# ## 7.1 From body to request
#
# Everything that can be wrong with a body is found here, once, before it costs anything.
#
# **Predict.** Which of these should a server refuse: `"n": 1`, `"n": true`, `"best_of": 1`,
# `"best_of": 2`, `"temprature": 0`, `"tools": []`, `"temperature": null`? *Your answer:*

# %% [markdown]
# What a body may hold is written down in `solutions/api_request.py`: four tables of fields (the
# fourth, `SAMPLING`, names those that go on to `SamplingParams` as they are), and `ApiRequest`, which is what you make of a body. Whatever is wrong is raised as an
# `ApiError(status, message, param, code)`; `invalid(message, param)` makes the most frequent one.

# %%
# Experiment: the fields of a body
wrap = partial(textwrap.fill, width=96, subsequent_indent="   ", break_on_hyphens=False)
for endpoint in (CHAT, COMPLETION):
    print(wrap(f"{endpoint}, honoured: {', '.join(sorted(HONOURED[endpoint]))}"))
    allowed = {n: " or ".join(map(json.dumps, fine)) for n, fine in UNSUPPORTED[endpoint].items()}
    shown = "; ".join(f"{name}: {fine or 'no other'}" for name, fine in allowed.items())
    print(wrap(f"{endpoint}, refused but for null and these values: {shown}"))
print(wrap(f"both, harmless: {', '.join(HARMLESS)}"))
print(f"both: at most {MAX_CHOICES} answers to one body")

# %%
# include: invalid

# %%
# include: parse_body

# %%
check("7.1")

# %%
# Experiment: the running example
body = json.dumps({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 16})
print(body)
api = parse_body(body, CHAT, "smollm2")
print(f"{len(body)} bytes; {len(api.prompts)} prompt, n = {api.n}, stream = {api.stream}")
print(f"temperature {api.params.temperature}, max_tokens {api.params.max_tokens}")
ids = chat_ids(api.prompts[0], text.encode, text.special)
print(f"{len(ids)} ids: {ids[:6]} ... {ids[-3:]}")

# %%
wrong = {
    "not JSON": "{'prompt': 'Hi'}",
    "a typing error": '{"prompt": "Hi", "temprature": 0}',
    "not offered": '{"prompt": "Hi", "best_of": 4}',
    "changes nothing": '{"prompt": "Hi", "best_of": 1, "user": "ann"}',
    "null": '{"prompt": "Hi", "temperature": null}',
    "too hot": '{"prompt": "Hi", "temperature": 3}',
    "true is no number": '{"prompt": "Hi", "n": true}',
    "too many": '{"prompt": "Hi", "n": 10000}',
    "half a character": '{"prompt": "Hi \\ud83d"}',
    "nothing to say": '{"prompt": ""}',
    "another model": '{"prompt": "Hi", "model": "gpt-4o"}',
}


# %%
# Experiment: bodies, good and bad
for label, body in wrong.items():
    try:
        parse_body(body, COMPLETION, "smollm2")
        print(f"{label:18} accepted")
    except Exception as error:  # an ApiError
        print(f"{label:18} {error.status} {error.code}, param {error.param}")
        print(f"{'':18}   {error.message[:72]}")

# %% [markdown]
# ## 7.2 Answers
#
# A whole answer is one JSON object. A stream is the same answer in parts, each in a *server-sent
# event*: the bytes `data: `, the JSON on one line, a blank line.
#
# **Predict.** TCP cuts a stream wherever it likes. How does a reader know where an event ends?
# *Your answer:*

# %%
# include: LEAST, OBJECTS, TokenBytes, Head, Usage, Piece

# %%
# include: response_body, chunk_body, usage_chunk, error_body, to_json, encode_event

# %%
check("7.2")

# %%
# Experiment: an event stream, byte by byte
head = Head("chatcmpl-1", 1_800_000_000, "smollm2", CHAT)
parts = [Piece(0, "The"), Piece(0, " café"), Piece(0, "", finish_reason="stop")]
for n, piece in enumerate(parts):
    print(encode_event(chunk_body(head, piece, first=n == 0)).decode(), end="")
print(encode_event(usage_chunk(head, Usage(37, 2))).decode(), end="")
last = encode_event(None)
print(last.decode(), end="")
print("the last one in hexadecimal:", last.hex(" "))
event = encode_event(chunk_body(head, parts[1]))
cut = event.index("é".encode()) + 1  # in the middle of a character
print("cut in the middle of a character:", event[cut - 6 : cut], "then", event[cut : cut + 3])

# %%
# Experiment: bytes a token
ids = text.encode(" The capital of France is Paris, which lies on the river Seine." * 4)
pieces = [text.decode([token]) for token in ids]
events = [len(encode_event(chunk_body(head, Piece(0, piece)))) for piece in pieces]
characters = sum(map(len, pieces)) / len(pieces)
each = sum(events) / len(events)
print(
    f"{characters:.1f} characters a token, {each:.0f} bytes an event: {each / characters:.0f} to 1"
)
print(f"8 streams of 12 tokens a second: {8 * 12 * each / 1000:.0f} kB a second")

# %% [markdown]
# ## 7.3 The engine's thread
#
# One thread owns the batcher and does nothing but steps. It sleeps while there is nothing to do. A
# submit wakes it, and never waits for a step.
#
# **Predict.** A thread that asks in a loop "is there work?" also finds it. What is wrong with that?
# And what should become of the requests when a step raises something that nobody expected?
# *Your answer:*

# %%
# include: EngineDead

# %%
# include: EngineThread

# %%
check("7.3")


# %%
class Slow(Blank):
    """A Blank whose forward takes a while."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, tokens, positions, cache=None, rows=None):
        """Logits [B, V], later."""
        time.sleep(self.seconds)
        return super().forward(tokens, positions)


def small_batcher(chosen, rows=4, length=64, **limits):
    """A batcher around a model that costs nothing."""
    return Batcher(chosen, KVCache(chosen.config, rows, length), limits=Limits(**limits))


def greedy(prompt, most, **wishes):
    """A request that takes the most probable tokens."""
    return Request(prompt, SamplingParams(temperature=0, max_tokens=most), **wishes)


# %%
# Experiment: the engine sleeps, and is woken
steps, done = [], threading.Event()
engine = EngineThread(small_batcher(Slow(0.2)), on_step=lambda step, took: steps.append(took))
engine.start()
before = time.process_time()
time.sleep(1.0)
print(f"idle for a second: {len(steps)} steps, {time.process_time() - before:.2f} s of a core")
taken = []
for name in ("first", "second", "third", "last"):
    began = time.perf_counter()
    engine.submit(greedy([1], 3, on_finish=lambda request: done.set(), id=name))
    taken.append(time.perf_counter() - began)
    time.sleep(0.05)  # in the middle of a step
done.wait()
print(f"submit took {1000 * max(taken):.2f} ms at most, a step {1000 * max(steps):.0f} ms")
print(f"stopped: {engine.stop(5.0)}, alive: {engine.is_alive}")


# %%
def full_disk(step, took):
    """What is called after each step, and fails in the third."""
    steps.append(took)
    if len(steps) == 3:
        raise OSError("no space left for the log")


def tell(request):
    """Note how a request ended."""
    ended.append(f"{request.id}: {request.finish_reason}, {request.error}")


# %%
# Experiment: the engine dies, and says so
steps, ended = [], []
engine = EngineThread(small_batcher(Blank()), on_step=full_disk)
for name, most in {"short": 2, "long": 20, "longer": 30}.items():
    engine.submit(greedy([1], most, id=name, on_finish=tell))
engine.start()
while engine.is_alive:
    time.sleep(0.01)
print(*sorted(ended), sep="\n")
try:
    engine.submit(greedy([1], 1))
except EngineDead as refusal:
    print("too late:", refusal)

# %% [markdown]
# ## 7.4 A request's channel
#
# Tokens become text on the engine's thread, for a stop string must end the request in the same
# step. The text goes to the loop through a channel.
#
# **Predict.** A client reads nothing for a minute. Its request makes 16 tokens a second. How many
# pieces wait for it then? Who else waits? *Your answer:*

# %%
# include: Channel, listen

# %%
check("7.4")


# %%
def letters(token):
    """A tokenizer for Blank: token 1 is "x "."""
    return b"x "


# %%
async def two_readers(slow_every, tokens=40):
    """One batch, one reader that takes every piece at once and one that comes now and then."""
    loop, calls, told = asyncio.get_running_loop(), [0, 0], {}
    engine = EngineThread(small_batcher(Slow(0.01), length=128))

    def call_soon(n, function):
        calls[n] += 1
        loop.call_soon_threadsafe(function)

    async def read(n, every):
        channel, request = Channel(partial(call_soon, n)), greedy([1], tokens)
        listen(request, 0, channel, Detokenizer(letters), StopMatcher([]))
        engine.submit(request)
        told[n] = []
        while not (told[n] and told[n][-1].finish_reason):
            await asyncio.sleep(every)
            told[n] += await channel.get()

    engine.start()
    await asyncio.gather(read(0, 0), read(1, slow_every))
    engine.stop(5.0)
    return told, calls


# %%
# Experiment: a slow reader
told, calls = run(two_readers(slow_every=0.2))
for n, label in enumerate(("quick", "slow")):
    sizes = [len(piece.text) for piece in told[n]]
    shown = f"{len(sizes):2} pieces, {calls[n]:2} calls of the loop, {sum(sizes)} characters"
    print(f"{label:5} reader: {shown}, the longest piece {max(sizes)}")
same = ["".join(piece.text for piece in told[n]) for n in (0, 1)]
print("the same text:", same[0] == same[1])

# %% [markdown]
# ## 7.5 Backpressure
#
# **Predict.** Two requests a second come, and each stays for 3 seconds. How many are inside? Then:
# 64 may wait, and 1.6 a second are served. How long does the last in line wait? *Your answer:*

# %%
# Experiment: Little's law by hand
arrivals = [0.5 * n for n in range(40)]
inside = [sum(came <= second < came + 3 for came in arrivals) for second in range(8)]
print("inside at each second:", *inside)
print(f"2 a second times 3 seconds: {2 * 3}")
for bound in (8, 64, 1000):
    print(f"{bound:5} wait, 1.6 a second are served: the last waits {bound / 1.6:.0f} s")

# %% [markdown]
# More requests than can be served is a matter of time, on a good day. What then?

# %%
# include: REMEMBERED, LONGEST_WAIT

# %%
# include: Pace, Door, failure

# %%
check("7.5")

# %%
# Experiment: when to come again
pace = Pace()
print("nothing known: Retry-After", pace.wait(5, now=0.0))
for second in (0.0, 2.0, 4.0):
    pace.note(second)
print("three were over at 0, 2 and 4, five wait:", pace.wait(5, now=4.0))
print("at second 10 still nobody more:", pace.wait(5, now=10.0))
door = Door(bound=4, waiting=lambda: 3, pace=pace, clock=lambda: 4.0)
with door.enter():
    try:
        with door.enter():
            print("not reached")
    except Exception as error:  # an ApiError
        print(f"3 wait and 1 comes: {error.status} {error.code}, Retry-After {error.retry_after}")

# %% [markdown]
# Now let more come than can be served: a load of 1.2, for four minutes of a clock that is turned by
# hand. Eight rows, 20 tokens each, 0.1 s a step: 4 requests a second can be served, 4.8 come.
#
# **Predict.** How long does somebody wait who comes in the third minute? What if clients give up
# after 10 seconds, and nobody notices: how many of the answers are read by anybody? *Your answer:*


# %%
def overload(bound, gives_up=None, seconds=240):
    """Every (second, request), and how many wait at the end. gives_up: noticed after so long."""
    rng, now, due, told = random.Random(7), [0.0], 0.0, []
    batcher = small_batcher(Blank(), rows=8, max_waiting=bound)
    batcher.clock = lambda: now[0]
    while now[0] < seconds:
        while due <= now[0]:
            until = None if gives_up is None else due + gives_up
            request = greedy([1], 20, admit_by=until)
            with suppress(QueueFull):  # it has no arrival then
                batcher.submit(request)
            told.append((due, request))
            due += rng.expovariate(4.8)
        batcher.step()
        now[0] += 0.1
    return told, len(batcher.waiting)


# %%
# Experiment: no bound, and a bound
ways = {
    "no bound": overload(10**6),
    "no bound, leaving noticed": overload(10**6, gives_up=10),
    "at most 16 wait": overload(16, gives_up=10),
}
print("came in the third minute   refused  begun in 10 s  mean wait  wait at the end")
for label, (told, waiting) in ways.items():
    then = [(came, one) for came, one in told if 120 <= came < 180]
    waits = [one.admitted - came for came, one in then if one.admitted]
    refused = sum(one.arrival is None for _, one in then) / len(then)
    in_time = sum(wait <= 10 for wait in waits) / len(then)
    shown = f"{refused:7.0%} {in_time:14.0%} {sum(waits) / len(waits):8.1f} s {waiting:16}"
    print(f"{label:26}{shown}")

# %%
# Experiment: the plot of the queue
fig, ax = plt.subplots(num="overload", figsize=(8, 3.2), layout="constrained")
styles = ((ORANGE, "-"), (PINK, "--"), (BLUE, "-."))
for (label, (told, _)), (colour, style) in zip(ways.items(), styles, strict=True):
    served = [(came, one.admitted - came) for came, one in told if one.admitted]
    ax.plot(*zip(*served, strict=True), style, color=colour, label=label)
ax.axhline(10, color="black", lw=1, ls=":")
ax.text(150, 11, "clients give up", fontsize=8)
ax.set(xlabel="came at second", ylabel="waited for its turn (s)")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %%
# Experiment: what somebody who waits costs
tracemalloc.start()
before = tracemalloc.get_traced_memory()[0]
crowd = [greedy([1000 + n for n in range(1000)], 20) for _ in range(100)]
each_waits = (tracemalloc.get_traced_memory()[0] - before) / len(crowd)
tracemalloc.stop()
print(f"a request with 1,000 tokens that waits: {each_waits / 1000:.0f} kB")
print(f"0.8 a second too many: {0.8 * 3600 * each_waits / 1e6:.0f} MB more every hour,")
print(
    f"and after that hour {0.8 * 3600:.0f} wait, the last of them {0.8 * 3600 / 4 / 60:.0f} minutes"
)

# %% [markdown]
# Memory is what kills the process in the end. Long before that, nobody gets an answer in time.
#
# ## 7.6 Results are kept, for a while
#
# A connection breaks when the answer is nearly complete. With its id the client can fetch it for
# another minute.
#
# **Predict.** What must bound the memory of these results: their age, their number or their bytes?
# *Your answer:*

# %%
# include: RUNNING, Kept

# %%
# include: ResultStore

# %%
check("7.6")

# %%
# Experiment: results are kept for 60 seconds
now = [0.0]
store = ResultStore(seconds=60, most=3, size=1000, clock=lambda: now[0])
store.begin("cmpl-1")
print("second  0.0:", store.get("cmpl-1"))
now[0] = 2.0
store.keep("cmpl-1", 200, b"{'text': 'Paris'}")
for second in (2.0, 61.9, 62.0):
    now[0] = second
    kept = store.get("cmpl-1")
    print(f"second {second:4.1f}: {kept and kept.body}")
for n in range(5):
    store.keep(f"cmpl-{n}", 200, b"x" * 300)
print(f"five of 300 bytes: {len(store)} kept, {store.bytes} bytes")
store.keep("cmpl-9", 200, b"x" * 800)
print(f"one of 800 more  : {len(store)} kept, {store.bytes} bytes")

# %% [markdown]
# ## 7.7 Streams, and clients that go away
#
# **Predict.** A client closes its connection while its request waits in the queue. Who tells the
# server? And while its prompt is computed? *Your answer:*

# %%
# include: KEEP_ALIVE, Job

# %%
# include: collect, stream, while_connected

# %%
check("7.7")

# %% [markdown]
# A whole service now, without HTTP: `Service` puts the parts together, yours among them. A client
# that goes away is a message `http.disconnect` from `receive`.


# %%
MINE = Parts(
    parse_body=parse_body,
    response_body=response_body,
    error_body=error_body,
    to_json=to_json,
    EngineThread=EngineThread,
    Channel=Channel,
    listen=listen,
    Pace=Pace,
    Door=Door,
    failure=failure,
    ResultStore=ResultStore,
    collect=collect,
    stream=stream,
    while_connected=while_connected,
)


# %%
async def opened(rows=2, watchers=(), **wishes):
    """A service of your parts around the small model, warm."""
    settings = Settings(max_running=rows, step_tokens=32, **wishes)
    limits = Limits(max_waiting=settings.max_waiting, step_tokens=32)
    batcher = Batcher(few, KVCache(few.config, rows, 1024), config.eos_token_ids, limits)
    service = Service(batcher, text, settings, "smollm2", watchers, parts=MINE)
    await service.start()
    return service


def question(words=QUESTION, most=60):
    """The body of a chat whose answer has so many tokens."""
    messages = [{"role": "user", "content": words}]
    return json.dumps({"messages": messages, "max_tokens": most, "ignore_eos": True}).encode()


# %%
PROMPTS = {"waiting": QUESTION, "prefill": "Tell me more. " * 150, "decode": QUESTION}


def steps_into(steps):
    """A watcher that keeps the steps."""
    return lambda event: steps.append(event) if isinstance(event, Stepped) else None


# %%
async def gone(phase, is_noticed):
    """A client goes away in this phase: tokens of room held then, steps and tokens after that."""
    steps, left = [], asyncio.Event()
    service = await opened(watchers=[steps_into(steps)])
    others = [await service.open(question(), CHAT, 0.0) for _ in range(2 * (phase == "waiting"))]
    job = await service.open(question(PROMPTS[phase]), CHAT, service.clock())

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    work, request = collect(job), job.requests[0]
    task = asyncio.ensure_future(while_connected(work, receive) if is_noticed else work)
    while request.state != phase or (phase == "decode" and len(request.output) < 5):
        await asyncio.sleep(0.001)
    held, count, made = request.size * (request.row is not None), len(steps), request.computed
    left.set()
    while request.finish_reason is None:
        await asyncio.sleep(0.001)
    count, made = len(steps) - count, request.computed - made
    await asyncio.gather(task, return_exceptions=True)
    [other.cancel() for other in others]
    await service.drain()
    return held, count, made


# %%
# Experiment: a client that goes away
print("it goes while   noticed  room held  steps until it is free  tokens computed for nobody")
until_free = []
for phase in PROMPTS:
    for is_noticed in (False, True):
        held, count, wasted = run(gone(phase, is_noticed))
        print(f"{phase:15} {is_noticed!s:7} {held:10} {count:23} {wasted:27}")
        until_free += [count] * is_noticed

# %% [markdown]
# ## 7.8 Health, and an orderly end
#
# `/health` is asked by machines: one that sends no more traffic, one that restarts. Both need the
# truth about the engine's thread, not about the web server.
#
# **Predict.** The engine's thread died a minute ago. What does a health check answer that returns
# 200 whenever it is called? *Your answer:*

# %%
# include: Phase

# %%
# include: health, Lifecycle

# %%
check("7.8")

# %%
# Experiment: what health says
print("phase     thread  step for   answer")
for phase, is_alive, step in (
    (Phase.WARMING, False, None),
    (Phase.READY, True, None),
    (Phase.READY, True, 0.1),
    (Phase.READY, True, 61.0),
    (Phase.READY, False, None),
    (Phase.DRAINING, True, 0.1),
    (Phase.STOPPED, False, None),
):
    status, word = health(phase, is_alive, step, stall_seconds=60)
    took = "-" if step is None else f"{step:.1f} s"
    print(f"{phase!s:9} {'alive' if is_alive else 'dead':6} {took:>9}   {status} {word}")


# %%
MINE = replace(MINE, health=health, Lifecycle=Lifecycle)


async def client(service, most):
    """One request, as a client meets it."""
    try:
        with service.lifecycle.request():
            job = await service.open(question(most=most), CHAT, service.clock())
            body = await collect(job)
        return f"{body['usage']['completion_tokens']} tokens"
    except Exception as error:  # an ApiError
        return f"{error.status} {error.code}"


# %%
async def deploy(limit):
    """Three clients are inside when the signal comes; a fourth comes after it."""
    service = await opened(rows=4, drain_timeout=limit)
    inside = [asyncio.ensure_future(client(service, most)) for most in (5, 10, 30)]
    await asyncio.sleep(0.1)
    began, end = time.perf_counter(), asyncio.ensure_future(service.drain())
    await asyncio.sleep(0.01)
    health, fourth = service.health(), await client(service, 10)
    answers = await asyncio.gather(*inside)
    finished = await end
    took, free = time.perf_counter() - began, service.batcher.cache.free_tokens
    total = service.batcher.cache.total_tokens
    return health, fourth, answers, finished, took, f"{free} of {total}"


# %%
# Experiment: draining
for limit in (30.0, 0.5):
    health_then, fourth, answers, finished, took, free = run(deploy(limit))
    print(f"limit {limit:g} s: health {health_then[0]} {health_then[1]['status']}")
    print(f"   one that comes now: {fourth}")
    print(f"   those inside: {', '.join(answers)}")
    print(f"   all finished by themselves: {finished}; {took:.1f} s; room free {free}")

# %% [markdown]
# ## The whole, over HTTP
#
# The whole model, on a free port of this machine, with your functions in the service.
#
# **Predict.** The claim: the first token comes within 500 ms. For which prompts will that hold, on
# an idle machine and with seven others streaming? *Your answer:*


# %%
@contextmanager
def serving(rows=8, **wishes):
    """A service of your parts on a free port, in a thread: its address, while the block lasts."""
    settings = Settings(port=0, max_running=rows, **wishes)
    limits = Limits(max_waiting=settings.max_waiting, step_tokens=settings.step_tokens)
    batcher = Batcher(model, KVCache(config, rows, 1024), config.eos_token_ids, limits)
    service = Service(batcher, text, settings, "smollm2", parts=MINE)
    ready = threading.Event()
    server = serve_http.make(create_app(service, settings), service, settings, ready.set)
    with serve_http.listen(settings) as sock, ThreadPoolExecutor(1) as pool:
        pool.submit(server.run, [sock])
        try:
            ready.wait(60)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.handle_exit(2, None)  # what Ctrl-C does


def asked(tokens=37, most=400):
    """A chat of about so many tokens, as a stream."""
    words = QUESTION + " Please." * ((tokens - 37) // 2)
    messages = [{"role": "user", "content": words}]
    return {"messages": messages, "max_tokens": most, "ignore_eos": True, "stream": True}


# %%
async def first_token(client, body):
    """Seconds until the first text is here; then the client goes away."""
    began = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if '"content"' in line:
                return time.perf_counter() - began


# %%
async def busy(client, most):
    """Read answers, one after the other, for ever."""
    while True:
        await client.post("/v1/chat/completions", json=asked(most=most))


async def first_tokens(address, others, lengths, most=400):
    """Seconds to the first token for each length, beside so many other clients."""
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        crowd = [asyncio.ensure_future(busy(client, most)) for _ in range(others)]
        await asyncio.sleep(2.0 if others else 0.0)
        found = [await first_token(client, asked(tokens)) for tokens in lengths]
        for one in crowd:
            one.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
    return found


# %%
# Experiment: the first token, by prompt and load
LENGTHS, first_of = (37, 150, 450), {}
with serving() as address:
    for others in (0, 4, 7):
        first_of[others] = run(first_tokens(address, others, LENGTHS))
print("other streams   " + "".join(f"{n:>5} tokens" for n in LENGTHS))
for others, found in first_of.items():
    print(f"{others:13}   " + "".join(f"{1000 * took:>9.0f} ms" for took in found))

# %%
# Experiment: the first token, when all rows are taken
queued = {}
for clients in (12, 16):
    with serving(queue_timeout=120.0) as address:
        queued[clients] = run(first_tokens(address, clients, [37], most=24))[0]
    print(f"{clients} others on 8 rows, 24 tokens each: {queued[clients]:.1f} s to the first token")

# %%
# Experiment: the plot of first tokens
fig, ax = plt.subplots(num="first_token", figsize=(7, 3.2), layout="constrained")
for (others, found), (colour, style) in zip(
    first_of.items(), ((BLUE, "o-"), (GREEN, "s--"), (ORANGE, "^-.")), strict=True
):
    label = "alone" if not others else f"beside {others} streams"
    ax.loglog(LENGTHS, [1000 * took for took in found], style, color=colour, label=label)
ax.axhline(500, color="black", lw=1, ls=":", label="claimed: under 500 ms")
ax.set_xticks(LENGTHS, LENGTHS)
ax.minorticks_off()
ax.set(xlabel="tokens of the prompt", ylabel="to the first token (ms)")
fig.legend(loc="outside right center")
plt.show()

# %% [markdown]
# The first token needs the whole prompt, and shares each step with those who stream. When all rows
# are taken, it waits for a row as well.
#
# **Predict.** The queue is full, and a step takes half a second. How soon does a client hear no?
# *Your answer:*


# %%
async def until(client, what, count):
    """Wait until /health says that so many requests are running, or waiting."""
    while (await client.get("/health")).json()[what] < count:
        await asyncio.sleep(0.01)


async def refusals(address, count=40):
    """With four running and four waiting, ask again and again: seconds, responses."""
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        crowd, taken, responses = [], [], []
        for what in ("running", "waiting"):
            crowd += [asyncio.ensure_future(first_token(client, asked(900))) for _ in range(4)]
            await until(client, what, 4)
        for _ in range(count):
            began = time.perf_counter()
            responses.append(await client.post("/v1/chat/completions", json=asked()))
            taken.append(time.perf_counter() - began)
        for one in crowd:
            one.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
    return taken, responses


# %%
# Experiment: how soon a client hears no
with serving(rows=4, max_waiting=4) as address:
    taken, responses = run(refusals(address))
said = responses[0]
print(
    f"{said.status_code}, Retry-After {said.headers['retry-after']}, {said.json()['error']['code']}"
)
print(f"{len(taken)} times: {sorted({response.status_code for response in responses})}")
no_after = sorted(1000 * took for took in taken)
print(f"half of them within {no_after[20]:.1f} ms, the slowest {no_after[-1]:.1f} ms")

# %% [markdown]
# Last, the field's folklore about this layer beside what your machine says.

# %%
# Experiment: claimed beside measured
middle = {
    label: sorted(1000 * w for _, w in found)[len(found) // 2] for label, found in late.items()
}
print("claimed: the first token comes within 500 ms")
for others, found in first_of.items():
    shown = ", ".join(f"{1000 * t:.0f} ms ({n})" for n, t in zip(LENGTHS, found, strict=True))
    print(f"   here: beside {others} streams, by tokens of the prompt: {shown}")
print(f"   here: behind 12 others on 8 rows: {1000 * queued[12]:.0f} ms")
print("claimed: inference must not run on the event loop")
print(
    f"   here: a ping is late by {middle['on the loop']:.0f} ms on it, {middle['in a thread']:.1f} ms beside it"
)
print("claimed: threads do not help")
print(
    f"   here: eight threads give {speeds[8, 1] / speeds[1, 1]:.1f} times one, a batch of eight {speeds[1, 8] / speeds[1, 1]:.1f} times"
)
print("claimed: without backpressure the process dies of memory")
print(
    f"   here: {0.8 * 3600 * each_waits / 1e6:.0f} MB an hour at a load of 1.2; long before, all have given up"
)
print("claimed: a closed client frees its memory at once")
print(f"   here: within {max(until_free)} steps; the one that is running is not stopped")

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You have a service that holds under load. Chapter 08 listens to its events and turns them into
# numbers, logs and diagnoses: where the time went, where the memory went, and what to do.
