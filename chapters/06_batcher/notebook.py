# %% [markdown]
# # 06 · The batcher
#
# A decode step reads every weight of the model to make one token for one request. A second request
# in the same step needs the same weights, and costs far less than the first. So an engine lives from a full batch.
# You write what keeps it full: who waits, who is let in, what a step computes, who leaves, and the
# books that prove that everything came back.
#
# The reading is in `chapters/06_batcher/README.md`; its sections are named like the parts below.
# Cells that begin with `#| exercise` are yours to fill in. Run the cells from the top, in order.
# Stuck? `hint("6.1")` gets closer each time; `solution("6.1")` shows one answer.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# ## The running example
#
# One request goes through the whole course: `What is the capital of France?`. In this chapter it is
# not alone. Three others came before it. `few` is the same model cut off after 4 of its 30 layers:
# its answers are nonsense, its steps cost a fifth, and some experiments only look at the time.

# %%
import random
from dataclasses import replace
from math import log

import matplotlib.pyplot as plt

from course.paths import MODEL
from course.text import Text
from solutions.chat import chat_ids
from solutions.greedy import generate_greedy
from solutions.loader import load_weights, read_config

text, config = Text(MODEL), read_config(MODEL)
weights = load_weights(MODEL, config)
model, few = Llama(config, weights), Llama(replace(config, num_hidden_layers=4), weights)
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes


# %%
questions = {
    "H": "Say hello.",
    "C": "Name three colours.",
    "R": "Write a poem about rain.",
    "F": "What is the capital of France?",
}


def asked(words):
    """A question as the ids of a chat."""
    return chat_ids([{"role": "user", "content": words}], text.encode, text.special)


def seconds(call, times=3):
    """The quickest of several calls: other programs only add time."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


# %%
# Experiment: the running example
for name, words in questions.items():
    print(f"{name}: {len(asked(words))} ids  {words}")
print(f"a decode step reads {sum(w.nbytes for w in weights.values()) / 1e6:.0f} MB of weights")

# %% [markdown]
# **Predict.** One decode step for one request takes some time. How long does one for eight requests
# take: (a) as long, (b) twice, (c) eight times? *Your answer:*


# %%
# Experiment: a second request in the same step
def decode_step(rows):
    """Seconds of one forward for one new token of each of so many requests."""
    cache, at = KVCache(config, rows, 64), torch.arange(32).expand(rows, -1)
    for row in range(rows):
        cache.reserve(row, 64)
    model.forward(torch.full((rows, 32), 500), at, cache)
    newest, place = torch.full((rows, 1), 500), torch.full((rows, 1), 32)
    return seconds(lambda: model.forward(newest, place, cache), times=5)


step_of = {rows: decode_step(rows) for rows in (1, 4, 8)}
for rows, took in step_of.items():
    each = f"{took / step_of[1]:.2f} times as long, {1000 * took / rows:3.0f} ms a token"
    print(f"{rows} requests: {1000 * took:4.0f} ms a step, {each}")

# %% [markdown]
# A step for eight takes far less than eight steps. This chapter lives from that difference. Two things stand in its way. Requests have
# different lengths, and they do not come at the same time.
#
# ## 6.1 Static batches
#
# The simple way: take as many requests as there are rows, start together, end together. Prompts of
# different lengths are padded to one rectangle. An answer that is over waits for the longest.
#
# **Predict.** Three answers of 2, 5 and 3 tokens, two rows. How many steps does that take, if the
# third may begin only when the first two are both over? And if it may take a row as soon as one is
# free? *Your answer:*
#
# What you need of chapter 04 is imported above. `help(KVCache)` shows how a row is reserved and
# freed; `help(room_for)` and `help(Generation)` show the rest.

# %%
# include: StaticBatch

# %%
# include: pad, generate_static

# %%
check("6.1")


# %%
class Blank:
    """A model that always says token 1 and costs nothing: good for counting steps."""

    def __init__(self):
        tiny = {"vocab_size": 8, "num_key_value_heads": 1, "head_dim": 2, "num_hidden_layers": 1}
        self.config, self.device = replace(config, **tiny), torch.device("cpu")
        self.forwards = self.places = 0

    def forward(self, tokens, positions, cache=None, rows=None):
        """Logits [B, V] with token 1 far ahead; the places are counted."""
        self.forwards, self.places = self.forwards + 1, self.places + tokens.numel()
        logits = torch.zeros(len(tokens), 8)
        logits[:, 1] = 9.0
        return logits


# %%
# Experiment: three requests by hand, static
tokens, positions = pad([[11, 12, 13], [21]])
print("tokens   ", tokens.tolist())
print("positions", positions.tolist())
tokens, positions = pad([[11, 12], [21]], starts=[7, 0])
print("starts 7, 0: positions", positions.tolist())
blank = Blank()
for lengths in ([2, 5], [3]):
    cache = KVCache(blank.config, 2, 16)
    batch = generate_static(blank, cache, [[1]] * len(lengths), lengths)
    print(f"answers of {lengths}: {batch.places} places, {batch.wasted} of them wasted")
print(f"{blank.forwards} forwards")

# %% [markdown]
# A prompt of one token gives the first token of its answer, so every token costs one place. The
# second batch has one row here; a machine with two would have left the other idle. Now the real
# model, greedily, the batch beside each request alone.

# %%
# Experiment: a static batch of real requests
prompts = [asked(words) for words in questions.values()]
limits = [4, 12, 20, 20]
cache = KVCache(config, 4, 64)
batch = generate_static(model, cache, prompts, limits, config.eos_token_ids)
for name, prompt, limit, answer in zip(questions, prompts, limits, batch.answers, strict=True):
    alone = generate_greedy(model, prompt, limit, config.eos_token_ids, KVCache(config, 1, 64))
    said = text.decode(answer.ids)
    print(f"{name}: {len(answer.ids):2} tokens, {answer.finish_reason:6} {said[:30]!r}")
    print(f"   the same as alone: {alone == answer}")
print(f"{batch.places} places, {batch.wasted} wasted ({batch.wasted / batch.places:.0%})")

# %% [markdown]
# ## 6.2 The life of a request
#
# Static batches have no memory of a request: it is a row. To let requests come and go one by one,
# each needs a state of its own. There are four, and one table says what may follow what.
#
# **Predict.** A client hangs up while its prompt is being computed. Which state comes next? Can a
# request go back to waiting? *Your answer:*

# %%
# include: State, FOLLOWS, REASONS

# %%
# include: Request

# %%
check("6.2")

# %%
# Experiment: a life by hand
request = Request([11, 12, 13], SamplingParams(max_tokens=2), id="by hand")
request.fit(context=16, vocabulary=100)
print(f"{request.state}: needs room for {request.size}, {request.remaining} tokens to compute")
request.move(State.PREFILL)
for count in (2, 1):
    print(f"{request.state}: computes {request.upcoming(count)} from position {request.computed}")
    request.computed += count
request.move(State.DECODE)
for token in (41, 42):
    request.add(token)
    print(f"{request.state}: output {request.output}, next computes {request.upcoming(1)}")
    request.computed += 1
request.finish("length")
print(f"{request.state}: {request.finish_reason}")
refused = [lambda: request.move(State.DECODE), lambda: request.finish("cancelled")]
gone = Request([11, 12, 13], id="gone")
gone.move(State.PREFILL)
for attempt in (*refused, lambda: gone.move(State.WAITING)):
    try:
        attempt()
    except RuntimeError as refusal:
        print(refusal)
gone.finish("cancelled")
print(f"{gone.state}: {gone.finish_reason}")

# %%
# Experiment: the door
wishes = {
    "empty": ([], 5),
    "too long": ([1] * 16, 5),
    "foreign id": ([1, 100], 5),
    "a billion": ([1] * 10, 10**9),
}
for label, (prompt, most) in wishes.items():
    request = Request(prompt, SamplingParams(max_tokens=most))
    try:
        request.fit(context=16, vocabulary=100)
        print(f"{label}: accepted, with room for {request.limit} tokens of answer")
    except ValueError as refusal:
        print(f"{label}: {refusal}")

# %% [markdown]
# ## 6.3 The waiting queue
#
# More requests come than there are rows. Who is next? First come, first served is fair and slow in
# the mean: one long request holds up ten short ones. Short first makes the mean wait short, and a
# long one may starve. So: short first, and whoever has waited for more than 5 seconds is promoted.
#
# **Predict.** A long request came at second 0, a short one comes at second 3. Who is first at
# second 4? At second 5.5, when another short one has just come? *Your answer:*

# %%
# include: SLACK, QueueFull

# %%
# include: WaitingQueue

# %%
check("6.3")


# %%
# Experiment: whose turn it is
def of_size(size, name, **wishes):
    """A request for so many tokens, prompt and answer together."""
    params = SamplingParams(max_tokens=size - size // 2)
    return Request([1] * (size // 2), params, id=name, **wishes)


queue = WaitingQueue(bound=4, patience=5.0)
queue.add(of_size(400, "long"), now=0.0)
queue.add(of_size(40, "short"), now=3.0)
print("second 4.0:", queue.first(4.0).id)
queue.add(of_size(80, "important", priority=-1), now=4.5)
print("second 4.5:", queue.first(4.5).id)
queue.add(of_size(20, "shorter"), now=5.5)
print("second 5.5:", queue.first(5.5).id, "- the long one has waited for more than 5 seconds")
try:
    queue.add(of_size(10, "one too many"), now=5.6)
except QueueFull as refusal:
    print("second 5.6:", refusal)
line = []
while (request := queue.first(5.6)) is not None:
    queue.remove(request)
    line.append(request.id)
print("in this order:", ", ".join(line))

# %% [markdown]
# Now many. One worker serves 250 tokens a second, one request at a time. Nine of ten requests have
# 20 to 80 tokens, one of ten has 800. With `patience=0` everybody is promoted at once: first come,
# first served. With `patience=inf` nobody ever is. Between them stand 5 and 20 seconds. *Load* is
# the work that comes in a second over the work that can be done in one.
#
# **Predict.** In which of the four orders do short requests wait the shortest in the mean? In which
# does a long one wait the longest? *Your answer:*


# %%
def waits(patience, load, count=1500, speed=250):
    """How long short and long requests wait for one worker, in seconds, and who never came."""
    rng, queue, arrival = random.Random(6), WaitingQueue(count, patience), 0.0
    coming, now, found = [], 0.0, {"short": [], "long": []}
    for _ in range(count):
        size = 800 if rng.random() < 0.1 else rng.randrange(20, 80)
        arrival += rng.expovariate(load * speed / 125)  # 125 tokens each, in the mean
        coming.append((arrival, of_size(size, "long" if size == 800 else "short")))
    for arrival, request in coming:
        while now < arrival and (first := queue.first(now)):
            queue.remove(first)
            found[first.id].append(now - first.arrival)
            now += first.size / speed
        now = max(now, arrival)
        queue.add(request, arrival)
    for left in queue:
        found[left.id].append(now - left.arrival)
    return found


# %%
# Experiment: short first, and a promise
print("load  order                     short: mean  longest     long: mean  longest")
orders = {"first come": 0.0, "short first": float("inf")}
orders |= {f"promoted after {n} s": n for n in (5, 20)}
for load in (0.8, 0.95, 1.2):
    for label, patience in orders.items():
        found = waits(patience, load)
        shown = [f"{sum(w) / len(w):9.1f} s {max(w):6.1f} s" for w in found.values()]
        print(f"{load:4}  {label:24} {shown[0]}    {shown[1]}")

# %% [markdown]
# Short first helps the many, and the long ones pay. Promotion gives some of it back. But patience is
# a number to choose: once most requests wait for more than 5 seconds, most are promoted, and the order
# is first come again. At a load above 1 that happens with any patience: no order makes up for a
# machine that is too small. Only the bound of the queue does, by saying no.
#
# The queue is asked in every step. So it must not become slow when many wait:

# %%
# Experiment: the cost of waiting
for count in (100, 1_000, 10_000, 50_000):
    rng, queue = random.Random(1), WaitingQueue(count)
    many = [of_size(rng.randrange(2, 900), n) for n in range(count)]
    began = time.perf_counter()
    for request in many:
        queue.add(request, 0.0)
    while (request := queue.first(1.0)) is not None:
        queue.remove(request)
    each = (time.perf_counter() - began) / count
    print(f"{count:6,} waiting: {1e6 * each:5.1f} µs to add, find and remove one")

# %% [markdown]
# ## 6.4 Admission
#
# A request that runs grows by a token in every step. If all may begin and the memory is full in the
# middle, somebody must be thrown out. So each reserves at the door what it may grow to.
#
# **Predict.** Three rows, 20 tokens of budget. In line stand requests of 8, 9, 6 and 3 tokens, in
# this order of priority. Who gets in? The one of 3 tokens would still fit beside the first two.
# *Your answer:*

# %%
# include: Room, admit

# %%
check("6.4")

# %%
# Experiment: at the door
cache, queue = KVCache(Blank().config, 4, 10), WaitingQueue(bound=10)
room = Room(cache, rows=3, budget=20)
for turn, size in enumerate((8, 9, 6, 3)):
    queue.add(of_size(size, f"{size} tokens", priority=turn), now=0.0)
running = []
for now in (0.0, 1.0, 2.0):
    came = admit(queue, room, now)
    running += came
    rows = ", ".join(f"{request.id} to row {request.row}" for request in came) or "nobody"
    print(f"{rows}; {cache.used_tokens} of {room.budget} used, {len(queue)} wait")
    over = running.pop(0)
    room.give_back(over)
    print(f"   {over.id} is over, free rows {room.free_rows}")

# %% [markdown]
# The one of 6 does not fit, and nobody overtakes it. With real numbers, a token of this model takes
# 46,080 bytes:

# %%
# Experiment: a budget in bytes
cache = KVCache(config, rows=2, max_length=16)
a_token = cache.nbytes // cache.total_tokens
print(f"{a_token:,} bytes a token")
for label, size in {"37 + 20": 57, "37 + 256": 293, "a full context": 8192}.items():
    print(f"{label:15} {size * a_token / 1e6:6.1f} MB; 4 GB hold {4e9 // (size * a_token):5.0f}")

# %% [markdown]
# ## 6.5 Chunked prefill
#
# Somebody comes with a prompt of 5,000 tokens. Computed in one piece it takes seconds, and all who
# decode stand still. So a step has a budget of places. Those who decode come first, one place each.
# Prompts share what is left, in chunks: the one admitted first always has a part, and beside it come
# the others, the shortest first.
#
# **Predict.** A step has 10 places. Three requests decode. Three prompts have 2, 2 and 9 tokens left.
# Chunks are padded to one rectangle, and padding takes places as well. What gets each of them?
# *Your answer:*

# %%
# include: Chunk, Plan

# %%
# include: plan_step, compute

# %%
check("6.5")


# %%
# Experiment: a plan by hand
def at_work(row, remaining, state):
    """A request in a row that has so many tokens to compute."""
    request = Request([1] * max(remaining, 1), id=f"row {row}")
    request.row, request.state = row, state
    return request


decoding = [at_work(row, 1, State.DECODE) for row in range(3)]
for left in ((2, 2, 9), (9, 2, 2), (20,), (20, 3), (20, 5), (20, 1)):
    prompts_left = [at_work(3 + n, count, State.PREFILL) for n, count in enumerate(left)]
    plan = plan_step(decoding + prompts_left, budget=10)
    chunks = [count for _, count in plan.prefills]
    useful = len(plan.decodes) + sum(chunks)
    print(f"prompts with {left} left: chunks {chunks}, {useful} of {plan.places} places useful")

# %% [markdown]
# **Predict.** A prompt of 300 tokens, in chunks of 300, 64 and 7. How far do the logits after its
# last token move? *Your answer:*


# %%
# Experiment: chunks change nothing
def logits_after(prompt, chunk):
    """The logits after a prompt that is computed in chunks."""
    request, cache = Request(prompt), KVCache(config, 1, len(prompt))
    cache.reserve(0, len(prompt))
    request.row, request.state, done = 0, State.PREFILL, []
    while not done:
        done, logits = compute(model, cache, [(request, min(chunk, request.remaining))])
    return logits[0]


long = (asked(questions["F"]) * 9)[:300]
whole = logits_after(long, 300)
for chunk in (300, 64, 7):
    other = logits_after(long, chunk)
    same = bool(other.argmax() == whole.argmax())
    print(f"chunks of {chunk:3}: moved by {(other - whole).abs().max():.1e}, same token {same}")

# %% [markdown]
# A step makes two forwards: decodes as `[B, 1]`, chunks as `[P, C]`. One forward for both would read
# the weights once instead of twice. But it would be one rectangle, and each decode would get C
# places to use one of them.
#
# **Predict.** Eight decode, one chunk of 32 tokens. Two forwards compute 8 + 32 places. How many
# does one padded forward compute? *Your answer:*


# %%
# Experiment: two forwards or one
def mixed(chunk, decodes=8, past=128):
    """Seconds of two forwards and of one padded, for some decodes and a chunk."""
    cache, last = KVCache(few.config, decodes + 1, 512), torch.tensor([decodes])
    for row in range(decodes + 1):
        cache.reserve(row, 512)
    rows = torch.arange(decodes)
    few.forward(*pad([[500] * past] * decodes), cache, rows)
    newest, prompt = [[500]] * decodes, [500] * chunk
    ones = pad(newest, [past] * decodes)
    both = pad([*newest, prompt], [past] * decodes + [0])

    def two():
        few.forward(*ones, cache, rows)
        few.forward(*pad([prompt]), cache, last)

    return seconds(two), seconds(lambda: few.forward(*both, cache, torch.arange(decodes + 1)))


print("chunk   places: two  one    milliseconds: two  one")
for chunk in (1, 8, 32, 128):
    apart, together = mixed(chunk)
    places = f"{8 + chunk:11} {9 * chunk:4}"
    print(f"{chunk:5} {places} {1000 * apart:17.0f} {1000 * together:4.0f}")

# %% [markdown]
# ## 6.6 How a request ends
#
# Each new token is handed out through a callback, and may be the last. There are five reasons to
# end, and whatever the reason, the one who waits must hear of it exactly once.
#
# **Predict.** A listener returns `1` from `on_token`. Does that end the answer? And the text
# `"stop"`? *Your answer:*

# %%
# include: emit, end, usable_rows

# %%
check("6.6")


# %%
# Experiment: reasons to end
def decoding_one(**wishes):
    """A request that decodes and may have two tokens."""
    request = Request([11], SamplingParams(max_tokens=2), **wishes)
    request.state = State.DECODE
    return request


for label, token, wishes in (
    ("an end id", 2, {}),
    ("an end id, ignored", 2, {"ignore_eos": True}),
    ("a token", 41, {}),
    ("the listener says 1", 41, {"on_token": lambda token: 1}),
    ("the listener says stop", 41, {"on_token": lambda token: "stop"}),
    ("the listener says True", 41, {"on_token": lambda token: True}),
):
    request = decoding_one(**wishes)
    reason = emit(request, token, end_ids={2})
    print(f"{label:24} {reason!s:5} output {request.output}")
request = decoding_one(on_finish=lambda request: print("on_finish hears:", request.finish_reason))
print([emit(request, token, {2}) for token in (41, 42)])
print("on_finish raised:", end(request, "length"))
rows = torch.tensor([[1.0, 2.0], [1.0, float("nan")], [1.0, float("-inf")], [float("inf"), 1.0]])
print("usable rows:", usable_rows(rows))

# %% [markdown]
# ## 6.7 The books
#
# A leak does no harm at first. So the batcher counts both sides: what the cache says is used, and
# what those who run should hold.
#
# **Predict.** Two requests of 6 tokens run. One ends, and nobody gives its room back. Which two
# numbers do not agree any more? And what is odd about its row? *Your answer:*

# %%
# include: violations

# %%
check("6.7")

# %%
# Experiment: books that do not balance
cache, queue, running = KVCache(Blank().config, 2, 10), WaitingQueue(bound=10), {}
room = Room(cache, rows=2, budget=20)
for name in "ab":
    queue.add(of_size(6, name), now=0.0)
for request in admit(queue, room, now=0.0):
    running[request.row] = request
print("as it should be:", violations(room, running, queue))
lost = running.pop(0)  # it is over, and nobody gave its room back
print("forgotten      :", *violations(room, running, queue), sep="\n   ")
running[0] = lost
cache.free(0)  # its room is given back, and it is still there
print("freed too early:", *violations(room, running, queue), sep="\n   ")

# %% [markdown]
# ## 6.8 One step
#
# All parts are there. `step` puts them in order: retire, admit, compute, sample, emit. It never
# waits, it never loses a request, and a fault in it ends only those whom it concerns. The private
# methods are a suggestion: write others if you like.

# %%
# include: Limits, Step

# %%
# include: Batcher

# %%
check("6.8")

# %% [markdown]
# First the three requests from the beginning: 2, 5 and 3 tokens on two rows. Capital letters are
# prefill, small ones decode, a dot is a row that nobody uses.


# %%
def timeline(batcher, rows):
    """Step until all is done: a line for each row with who used it, a letter for each step."""
    lines = [""] * rows
    while not batcher.idle:
        held = dict(batcher.running)
        step = batcher.step()
        held |= batcher.running
        for row in range(rows):
            used = row in step.decode or row in step.prefill
            letter = held[row].id if used else "."
            lines[row] += letter.lower() if row in step.decode else letter
    for row, line in enumerate(lines):
        print(f"   row {row}: {line}")
    return len(lines[0])


# %%
# Experiment: three requests by hand, continuous
for label, patient in (("as they came", False), ("short first", True)):
    blank = Blank()
    batcher = Batcher(blank, KVCache(blank.config, 2, 16))
    for turn, length in enumerate((2, 5, 3)):
        params = SamplingParams(temperature=0, max_tokens=length)
        batcher.submit(Request([1], params, priority=0 if patient else turn, id="ABC"[turn]))
    print(label)
    steps = timeline(batcher, rows=2)
    print(f"   {steps} steps, {blank.places} places for 10 tokens, {2 * steps - 10} idle")

# %% [markdown]
# As they came, no place is wasted. Short first lets the longest begin last, when nobody is left to
# share its steps: good for the mean wait, bad for the last one.
#
# Now the request of this course among three others, with two rows and 24 places a step.


# %%
def ask(limits, rows, most, order="HCRF", chosen=model):
    """A batcher with some of the four questions in its queue, in this order; and the requests."""
    batcher = Batcher(chosen, KVCache(config, rows, 64), config.eos_token_ids, limits)
    requests = []
    for turn, name in enumerate(order):
        params = SamplingParams(temperature=0, max_tokens=most)
        requests.append(Request(asked(questions[name]), params, priority=turn, id=name))
        batcher.submit(requests[-1])
    return batcher, requests


# %%
# Experiment: the request among others
batcher, requests = ask(Limits(step_tokens=24), rows=2, most=16)
timeline(batcher, rows=2)
for request in requests:
    waited = request.admitted - request.arrival
    said = text.decode(request.output)
    print(f"{request.id}: waited {waited:.1f} s, {request.finish_reason:6} {said!r}")
print(f"free {batcher.cache.free_tokens} of {batcher.cache.total_tokens}; books: {batcher.check()}")

# %% [markdown]
# **Predict.** Alone, in a batch of two or of four, in small chunks or all at once, first or last in
# line: which of these change the answer to `F`? *Your answer:*

# %%
# Experiment: the same answer in any company
answers = set()
for order, rows, budget in (("F", 1, 512), ("CF", 2, 512), ("HCRF", 4, 512), ("FRCH", 4, 9)):
    batcher, requests = ask(Limits(step_tokens=budget), rows, most=8, order=order)
    while not batcher.idle:
        batcher.step()
    output = next(request.output for request in requests if request.id == "F")
    answers.add(tuple(output))
    print(f"{order:4} on {rows} rows, {budget:3} places a step: {text.decode(output)!r}")
print("different answers:", len(answers))

# %% [markdown]
# ## What the batcher does
#
# **Predict.** The claim: continuous batching is over 3 times as fast as static. For which lengths of
# answers can that be true, and for which not at all? *Your answer:*


# %%
def lengths_of(kind, count=256):
    """How long answers are: all the same, evenly spread, or a few that are very long."""
    rng = random.Random(1)
    if kind == "all the same":
        return [46] * count
    if kind == "evenly spread":
        return [rng.randint(1, 91) for _ in range(count)]
    return [min(400, max(1, round(rng.lognormvariate(log(16), 1.5)))) for _ in range(count)]


def static_run(model, prompt, lengths, rows):
    """Batches of so many rows, one after the other: forwards, places and useful places."""
    cache, forwards, places, useful = KVCache(model.config, rows, len(prompt) + 400), 0, 0, 0
    for start in range(0, len(lengths), rows):
        some = lengths[start : start + rows]
        batch = generate_static(model, cache, [prompt] * len(some), some)
        forwards += max(some)
        places, useful = places + batch.places, useful + batch.useful
    return forwards, places, useful


# %%
def stopping_after(count):
    """A listener that ends the answer after so many tokens: nobody knows beforehand how many."""
    seen = []
    return lambda token: seen.append(token) or len(seen) == count


def continuous_run(model, prompt, lengths, rows, **limits):
    """The same with a batcher: its Steps, and how much of what was reserved was written."""
    limits = Limits(max_waiting=len(lengths), **limits)
    batcher = Batcher(model, KVCache(model.config, rows, len(prompt) + 400), limits=limits)
    for length in lengths:
        params = SamplingParams(temperature=0, max_tokens=400)
        batcher.submit(Request(prompt, params, on_token=stopping_after(length)))
    steps, reserved, written = [], 0, 0
    while not batcher.idle:
        steps.append(batcher.step())
        reserved += batcher.cache.used_tokens
        written += sum(request.computed for request in batcher.running.values())
    return steps, written / reserved


# %%
# Experiment: static against continuous, in steps
print("lengths         rows   static  continuous  ratio   rows in use: static  continuous")
in_steps = {}
for kind in ("all the same", "evenly spread", "heavy tail"):
    for rows in (2, 8, 32):
        lengths = lengths_of(kind)
        forwards, places, useful = static_run(Blank(), [1], lengths, rows)
        steps, in_use = continuous_run(Blank(), [1], lengths, rows)
        in_steps[kind, rows] = forwards / len(steps)
        shares = useful / places, sum(lengths) / (rows * len(steps))
        counts = f"{forwards:8} {len(steps):11} {in_steps[kind, rows]:6.1f}"
        print(f"{kind:15} {rows:4} {counts} {shares[0]:22.0%} {shares[1]:11.0%}")
print(f"{in_use:.0%} of the reserved room is written in the last of them, in the mean")

# %% [markdown]
# Nothing is won where all answers are equally long. The gain is the length of the longest in a batch
# over the mean, so it comes from the tail, and grows with the rows. With 32 rows part of it is lost
# again: at the end of the work, a few long answers run alone.
#
# Here are 8 rows, step by step.


# %%
def static_picture(lengths, rows):
    """What each row does in each step: 0 nobody, 1 prefill, 2 decode, 3 held and over."""
    columns = []
    for start in range(0, len(lengths), rows):
        some = lengths[start : start + rows]
        for n in range(max(some)):
            columns.append([1 if n == 0 else 2 if n < length else 3 for length in some])
    return torch.tensor(columns).T


def continuous_picture(steps, rows):
    """The same, from the Steps of a batcher."""
    picture = torch.zeros(rows, len(steps))
    for n, step in enumerate(steps):
        picture[list(step.prefill), n] = 1
        picture[step.decode, n] = 2
    return picture


# %%
# Experiment: the Gantt chart
lengths = [min(n, 60) for n in lengths_of("heavy tail", 32)]
steps, _ = continuous_run(Blank(), [1], lengths, 8)
pictures = {"static": static_picture(lengths, 8), "continuous": continuous_picture(steps, 8)}
paint = plt.matplotlib.colors.ListedColormap(["#ffffff", ORANGE, BLUE, "#d0d0d0"])
fig, axes = plt.subplots(2, 1, num="gantt", figsize=(9, 4), sharex=True, layout="constrained")
for ax, (label, picture) in zip(axes, pictures.items(), strict=True):
    ax.pcolormesh(picture, cmap=paint, vmin=0, vmax=3, edgecolors="white", linewidth=0.2)
    busy = ((picture == 1) | (picture == 2)).float().mean()
    ax.set(title=f"{label}: {picture.shape[1]} steps", ylabel="row")
    print(f"{label:10} {picture.shape[1]:4} steps, {busy:4.0%} of the places in use")
axes[1].set_xlabel("step")
words = ("prefill", "decode", "held by an answer that is over")
handles = [plt.Rectangle((0, 0), 1, 1, color=paint(n)) for n in (1, 2, 3)]
fig.legend(handles, words, loc="outside lower center", ncols=3, fontsize=8)
plt.show()

# %% [markdown]
# Steps are not seconds. A request that joins has its prompt computed in a forward of its own, which
# reads the weights once more. A static batch does that for all its rows at once.
#
# **Predict.** Will the ratio in seconds be larger or smaller than in steps? *Your answer:*

# %%
# Experiment: static against continuous, in seconds
rng, prompt = random.Random(1), asked(questions["F"])
lengths = [min(80, max(1, round(rng.lognormvariate(log(6), 1.5)))) for _ in range(64)]
began = time.perf_counter()
forwards, places, useful = static_run(few, prompt, lengths, 8)
middle = time.perf_counter()
steps, _ = continuous_run(few, prompt, lengths, 8)
took = middle - began, time.perf_counter() - middle
both = sum(bool(step.decode and step.prefill) for step in steps)
print(f"{sum(lengths)} tokens for 64 requests, the longest {max(lengths)}; 4 of 30 layers")
speeds, in_seconds = [sum(lengths) / t for t in took], took[0] / took[1]
print(f"static    : {forwards:4} forwards              {speeds[0]:6.0f} tokens/s")
counts = f"{len(steps) + both:4} forwards in {len(steps):3} steps"
print(f"continuous: {counts} {speeds[1]:6.0f} tokens/s")
print(f"ratio in steps {forwards / len(steps):.1f}, in seconds {in_seconds:.1f}")

# %% [markdown]
# ### How many rows?
#
# **Predict.** Sketch it: tokens a second against the number of rows, from 1 to 32. Where does
# doubling stop paying? *Your answer:*


# %%
def pace(rows, steps=5):
    """Seconds of a decode step with so many requests running, in the middle of several."""
    limits = Limits(max_waiting=rows, step_tokens=32 * rows)
    batcher = Batcher(model, KVCache(config, rows, 64), limits=limits)
    for _ in range(rows):
        batcher.submit(Request([500] * 32, SamplingParams(temperature=0, max_tokens=32)))
    batcher.step()  # all prompts
    taken = []
    for _ in range(steps):
        began = time.perf_counter()
        batcher.step()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[steps // 2]


# %%
# Experiment: throughput against rows
paces = {rows: pace(rows) for rows in (1, 2, 4, 8, 16, 32)}
print("rows  ms between tokens  tokens/s  against half the rows")
for rows, took in paces.items():
    gain = f"{2 * paces[rows // 2] / took:22.2f}" if rows > 1 else ""
    print(f"{rows:4} {1000 * took:18.0f} {rows / took:9.1f} {gain}".rstrip())

# %%
# Experiment: the plot of throughput
fig, (left, right) = plt.subplots(1, 2, num="batch_size", figsize=(9, 3.2), layout="constrained")
sizes = list(paces)
left.loglog(sizes, [n / paces[n] for n in sizes], "o-", color=BLUE, label="measured")
left.loglog(sizes, [n / paces[1] for n in sizes], "--", color=ORANGE, label="claimed: doubles")
left.set(xlabel="rows", ylabel="tokens a second, all together")
right.semilogx(sizes, [1000 * paces[n] for n in sizes], "o-", color=BLUE)
right.set(xlabel="rows", ylabel="between two tokens of one (ms)", ylim=(0, None))
for ax in (left, right):
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
left.legend()
plt.show()

# %% [markdown]
# ### One long prompt among short ones
#
# Five requests decode. Then somebody comes with 2,000 tokens, and a moment later one more with a
# short question. (The README has 5,000 tokens and all layers; in one piece that needs gigabytes.)
#
# **Predict.** Without chunks, how long is the longest gap between two tokens of the five? With 64
# places a step? And what does the long request pay for it? *Your answer:*


# %%
def coming(name, prompt, most, told, began):
    """A greedy request whose tokens note in told[name] when they came, in seconds."""
    told[name] = []
    note = told[name].append
    params = SamplingParams(temperature=0, max_tokens=most)
    return Request(prompt, params, on_token=lambda token: note(time.perf_counter() - began))


def crowd(budget, model=few, length=2000, after=0.3, most=60):
    """When the tokens came of five early requests, a long one and a late one; all prompts by id."""
    limits, short = Limits(step_tokens=budget), asked(questions["F"])
    batcher = Batcher(model, KVCache(model.config, 8, length + 72), limits=limits)
    began, told = time.perf_counter(), {}
    line = [(0.0, coming(f"early {n}", short, most, told, began)) for n in range(5)]
    line.append((after, coming("long", (short * 200)[:length], 4, told, began)))
    line.append((1.5 * after, coming("late", short, 4, told, began)))
    while line or not batcher.idle:
        while line and line[0][0] <= time.perf_counter() - began:
            batcher.submit(line.pop(0)[1])
        batcher.step()
    early = [times for name, times in told.items() if name.startswith("early")]
    told["gap"] = max(b - a for times in early for a, b in itertools.pairwise(times))
    told["late"], told["long"] = told["late"][0] - 1.5 * after, told["long"][0] - after
    return told


# %%
# Experiment: one long prompt among short ones
print("places a step  longest gap of five  first token of: a late short one  the long one")
crowds = {budget: crowd(budget) for budget in (8192, 512, 64)}
for budget, told in crowds.items():
    shown = "no limit" if budget == 8192 else budget
    first = f"{told['late']:31.2f} s {told['long']:11.2f} s"
    print(f"{shown:>13} {told['gap']:18.2f} s {first}")

# %%
# Experiment: the plot of the stall
fig, ax = plt.subplots(num="long_prompt", figsize=(7, 3), layout="constrained")
styles = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."))
for (budget, told), (colour, style) in zip(crowds.items(), styles, strict=True):
    times = told["early 0"]
    label = "no limit" if budget == 8192 else f"{budget} places a step"
    ax.step(times, range(1, len(times) + 1), style, color=colour, where="post", label=label)
ax.axvline(0.3, color="black", lw=1, ls=":")
ax.set(xlabel="seconds; the long prompt comes at the dotted line", ylabel="tokens of an early one")
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %% [markdown]
# A flat stretch is somebody who waits in front of half a sentence. Chunks cut it into short ones. The
# long request pays only where they are very short: every step reads the weights again.
#
# ### When something breaks
#
# **Predict.** The model raises an exception while it computes a chunk of a prompt. Who ends: that
# prompt, everybody who runs, or nobody? *Your answer:*


# %%
class Shaky(Blank):
    """A Blank that raises in its fifth forward, and says NaN after token 7."""

    def forward(self, tokens, positions, cache=None, rows=None):
        """Logits [B, V], sometimes."""
        logits = super().forward(tokens, positions)
        if self.forwards == 5:
            raise RuntimeError("the device is gone")
        logits[tokens[:, -1] == 7] = float("nan")
        return logits


def hang_up(token):
    """A listener whose reader went away."""
    raise ConnectionError("the reader went away")


def tell(request):
    """Say how a request ended."""
    why = f", {request.error}" if request.error else ""
    print(f"   {request.id}: {request.finish_reason}{why}")


# %%
# Experiment: when something breaks
shaky, now = Shaky(), [0.0]
limits = Limits(step_tokens=6)
batcher = Batcher(shaky, KVCache(shaky.config, 4, 16), limits=limits, clock=lambda: now[0])
six = {"params": SamplingParams(temperature=0, max_tokens=6), "on_finish": tell}
guests = {"fine": {}, "NaN": {}, "hangs up": {"on_token": hang_up}, "late": {"deadline": 2.0}}
for name, wishes in guests.items():
    batcher.submit(Request([7 if name == "NaN" else 1], id=name, **wishes, **six))
leaves = Request([1], id="leaves", **six)
batcher.submit(leaves)
batcher.submit(Request([1] * 10, id="after", **six))
for n in range(1, 99):
    now[0] += 0.5
    if n == 2:
        batcher.cancel(leaves)
    print(f"step {n}")
    batcher.step()
    if batcher.idle:
        break
print(f"free {batcher.cache.free_tokens} of {batcher.cache.total_tokens}; books: {batcher.check()}")

# %% [markdown]
# Whoever ends, the room comes back. A fault in the model ends those who were in that forward: their
# keys and values may be half written. The loop goes on with the others.
#
# ### What the batcher itself costs
#
# All this runs between two forwards. It must not take long, however many run or wait.

# %%
# Experiment: the cost of a step
print("running  waiting  ms a step, with a model that costs nothing")
for running, waiting in ((32, 0), (128, 0), (256, 0), (256, 10_000)):
    limits = Limits(max_waiting=running + waiting)
    batcher = Batcher(Blank(), KVCache(Blank().config, running, 64), limits=limits)
    for _ in range(running + waiting):
        batcher.submit(Request([1], SamplingParams(temperature=0, max_tokens=60)))
    batcher.step()  # admits them
    each = seconds(batcher.step, times=20)
    print(f"{running:7} {waiting:8,} {1000 * each:9.2f}")

# %% [markdown]
# Last, the field's folklore about this layer beside what your machine says.

# %%
# Experiment: claimed beside measured
print("claimed: continuous is over 3 times static in throughput")
for kind in ("heavy tail", "evenly spread", "all the same"):
    print(f"   here: {kind}, 8 rows: {in_steps[kind, 8]:.1f} times in steps")
print(f"   here: heavy tail, 8 rows, 4 layers: {in_seconds:.1f} times in seconds")
print("claimed: batch doubled is throughput doubled")
gains = [f"{n} to {2 * n}: {2 * paces[n] / paces[2 * n]:.2f}" for n in (1, 2, 4, 8, 16)]
print("   here:", ", ".join(gains))
print("claimed: start at 8, and stop at 80 % of memory")
held, factor = 32 * 293 * a_token / 1e6, paces[32] / paces[8]
print(f"   here: 32 requests of 293 tokens hold {held:.0f} MB; from 8 to 32 rows")
print(f"         throughput x {4 / factor:.1f}, time between two tokens x {factor:.1f}")
print("claimed: one long request must not block the rest")
for budget, told in crowds.items():
    print(f"   here: longest gap of the others {told['gap']:.2f} s with {budget} places a step")

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You have an engine that serves many at once, and a loop that somebody must call. Chapter 07 calls
# it from a thread of its own and puts HTTP in front: a queue that says no in time, tokens streamed
# as they come, and a client that goes away.
