# %% [markdown]
# # 05 · The sampler
#
# A model does not say a word. It gives a number for each of 49,152 tokens, and leaves. The sampler
# decides which one comes next, by rules that the caller may set. Then the token must become text:
# without a broken character, and without a piece of a stop string. You write all of it, and find out
# what each famous parameter really does to a real distribution.
#
# The reading is in `chapters/05_sampler/README.md`; its sections are named like the parts below.
# Cells that begin with `#| exercise` are yours to fill in. Run the cells from the top, in order.
# Stuck? `hint("5.1")` gets closer each time; `solution("5.1")` shows one answer.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# ## The running example
#
# One prompt goes through the whole course: `The capital of France is`. Chapter 04 ended with the
# logits of what comes next, and took the largest. Here are the others.

# %%
import functools
import textwrap
import time
from dataclasses import replace

import matplotlib.pyplot as plt

from course.paths import MODEL
from course.text import Text
from solutions.chat import chat_ids
from solutions.loader import load_weights, read_config

text, config = Text(MODEL), read_config(MODEL)
model = Llama(config, load_weights(MODEL, config))
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes


def after(words):
    """The logits [1, V] of what comes after a text."""
    ids = text.encode(words)
    return model.forward(torch.tensor([ids]), torch.arange(len(ids))[None])


def name(token):
    """A token as text that shows its spaces."""
    return repr(text.decode([int(token)]))


# %%
# Experiment: the running example
prompt = "The capital of France is"
logits = after(prompt)
print(f"{list(logits.shape)} logits, from {logits.min():.1f} to {logits.max():.1f}")
probable, order = logits[0].softmax(-1).sort(descending=True)
for place in (0, 1, 2, 3, 4, 9, 99, 999):
    print(f"place {place + 1:5,}: {probable[place]:8.5f}  {name(order[place])}")
print(
    f"places 1 to 10 together {probable[:10].sum():.3f}, 1,001 to 49,152 {probable[1000:].sum():.4f}"
)

# %% [markdown]
# One token has 77 %, and 48,152 tokens share 0.6 %. Nobody wants to see one of those, but a plain
# draw takes one of them once in 156 times. An answer has hundreds of tokens.
#
# ## 5.1 Temperature
#
# Dividing all logits by a temperature below 1 makes their differences larger, so the favourite gets
# more. Above 1 it gets less. The softmax then turns logits into probabilities.
#
# **Predict.** The logits are 2, 1, 0, and the probabilities 0.665, 0.245, 0.090. Halve the
# temperature. Does the first become (a) 0.75, (b) 0.87, (c) 1.33? *Your answer:*

# %%
# include: HIDDEN

# %%
# include: apply_temperature, softmax

# %%
check("5.1")

# %%
# Experiment: three logits
three = torch.tensor([[2.0, 1.0, 0.0]])


def heated(row, temperature):
    """The probabilities [V] of one row of logits [1, V] at a temperature."""
    return softmax(apply_temperature(row, torch.tensor([temperature])))[0]


for temperature in (0.0, 1e-30, 0.5, 1.0, 2.0, 1e30):
    print(f"temperature {temperature:<6g}", heated(three, temperature).numpy().round(3))
large = torch.tensor([100.0, 99.0, 98.0])
print("logits 100, 99, 98, exp first:  ", (large.exp() / large.exp().sum()).tolist())
print("the same, the largest taken away:", softmax(large[None])[0].numpy().round(3))

# %% [markdown]
# exp(100) does not fit into float32, and infinity over infinity is NaN. With the largest logit taken
# from all of them the quotient is the same and nothing overflows. For the same reason a temperature
# of 1e-30 is no danger, and 0 is a rule of its own: the favourite, certainly.
#
# **Predict.** Now the real distribution. At temperature 2, how much of the probability lies outside
# the 1,000 most probable tokens: 1 %, 10 %, or 50 %? *Your answer:*

# %%
# Experiment: temperature on the real distribution
print("temperature  ' Paris'   ' the'  tokens of 1 % and more  outside the first 1,000")
for temperature in (0.1, 0.5, 1.0, 1.5, 2.0):
    q = heated(logits, temperature)
    common, rare = int((q >= 0.01).sum()), float(q[order[1000:]].sum())
    print(f"{temperature:11} {q[order[0]]:9.4f} {q[order[1]]:8.4f} {common:23} {rare:24.6f}")

# %%
# Experiment: the plot of temperature
fig, (left, right) = plt.subplots(1, 2, num="temperature", figsize=(9, 3.2), layout="constrained")
styles = ((0.1, BLUE, "-"), (0.5, ORANGE, "--"), (1.0, GREEN, "-."), (2.0, PINK, ":"))
for column, (temperature, colour, style) in enumerate(styles):
    q = heated(logits, temperature)[order]
    left.bar(torch.arange(6) + 0.2 * column - 0.3, q[:6], 0.2, color=colour)
    right.loglog(torch.arange(1, len(q) + 1), q, style, color=colour, label=f"{temperature}")
left.set_xticks(range(6), [text.decode([int(i)]) for i in order[:6]])
left.set(xlabel="token", ylabel="probability", yscale="log", ylim=(1e-5, 2))
right.set(xlabel="place of the token", ylabel="probability", ylim=(1e-9, 2))
right.legend(title="temperature")
plt.show()

# %% [markdown]
# Temperature keeps the order of the tokens. It moves probability between the few good ones and the
# long tail, and at 2 half of it is in the tail. So temperature alone is a poor tool for variety.
#
# ## 5.2 Filters
#
# Filters cut the tail off. Top-k keeps a number of tokens, top-p (nucleus) a share of the
# probability, min-p whatever comes near enough to the favourite. A hidden token gets the logit -inf.
#
# **Predict.** Five tokens have 0.5, 0.25, 0.12, 0.08, 0.05. Top-p is 0.8. Which stay? And with
# min-p 0.2? *Your answer:*

# %%
# include: sort_marked

# %%
# include: keep_top_k, keep_top_p, keep_min_p

# %%
check("5.2")

# %%
# Experiment: five tokens
five = torch.tensor([[0.5, 0.25, 0.12, 0.08, 0.05]]).log()


def kept(row):
    """The letters of the tokens of a row of logits that can still come."""
    return " ".join("abcde"[i] for i in row[0].isfinite().nonzero()[:, 0])


for k in (0, 1, 2, 9):
    print(f"top-k {k}:    {kept(keep_top_k(five, torch.tensor([k])))}")
for p in (0.001, 0.5, 0.8, 1.0):
    print(f"top-p {p:<5}: {kept(keep_top_p(five, torch.tensor([p])))}")
for p in (0.0, 0.2, 0.6):
    print(f"min-p {p:<5}: {kept(keep_min_p(five, torch.tensor([p])))}")
even = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
print(f"top-k 2 of 2, 1, 1, 1, 0: {kept(keep_top_k(even, torch.tensor([2])))}")

# %% [markdown]
# The most probable token always stays, even with a top-p of 0.001: else nothing would be left to
# draw. Equal logits are treated alike by top-k, so four tokens stay in the last line.
#
# **Predict.** The filters do not commute. Take the logits 2, 1, 0, temperature 2 and top-p 0.6. How
# many tokens stay if top-p comes after the temperature, and how many if it comes before?
# *Your answer:*

# %%
# Experiment: the order
two, p = torch.tensor([2.0]), torch.tensor([0.6])
print("temperature 2, then top-p 0.6:", kept(keep_top_p(apply_temperature(three, two), p)))
print("top-p 0.6, then temperature 2:", kept(apply_temperature(keep_top_p(three, p), two)))
first_two = keep_top_k(three, torch.tensor([2]))
print("top-k 2:", softmax(first_two)[0].numpy().round(3))
print("top-p 0.7 of what is left:    ", kept(keep_top_p(first_two, torch.tensor([0.7]))))
print("top-p 0.7 of all, then top-k 2:", kept(keep_top_p(three, torch.tensor([0.7]))))

# %% [markdown]
# So the order is part of the promise: temperature, top-k, then top-p on what is left, renormalised,
# then min-p, as in transformers. vLLM takes min-p before top-k, llama.cpp the temperature last: a
# request that moves to another engine may change.
#
# **Predict.** The model is sure after "The capital of France is" and unsure after "Once upon a time,
# there was a". Which filter keeps more tokens where the model is unsure: top-k, top-p, or min-p?
# *Your answer:*

# %%
# Experiment: a sure and an unsure model
unsure = after("Once upon a time, there was a")
filters = {
    "top-k 40": lambda row: keep_top_k(row, torch.tensor([40])),
    "top-p 0.9": lambda row: keep_top_p(row, torch.tensor([0.9])),
    "min-p 0.1": lambda row: keep_min_p(row, torch.tensor([0.1])),
}
print("temperature  filter     sure: tokens, share   unsure: tokens, share")
for temperature in (1.0, 1.5):
    for label, keep in filters.items():
        line = f"{temperature:11}  {label:9}"
        for row in (logits, unsure):
            row = apply_temperature(row, torch.tensor([temperature]))
            stays = keep(row)[0].isfinite()
            line += f" {int(stays.sum()):13,} {softmax(row)[0, stays].sum():8.2f}"
        print(line)

# %%
# Experiment: the plot of what is kept
fig, axes = plt.subplots(1, 2, num="kept", figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, row, title in zip(axes, (logits, unsure), ("… of France is", "… there was a"), strict=True):
    q = softmax(row)[0].sort(descending=True).values
    ax.loglog(torch.arange(1, len(q) + 1), q, color="black", lw=1.5)
    marks = zip(filters.items(), (BLUE, ORANGE, GREEN), ("-", "--", ":"), strict=True)
    for (label, keep), colour, style in marks:
        count = int(keep(row).isfinite().sum())
        ax.axvline(count, color=colour, ls=style, lw=2.5, label=f"{label}: {count:,}")
    ax.set(title=title, xlabel="place of the token", ylim=(1e-9, 2))
    ax.legend(loc="lower left")
axes[0].set_ylabel("probability")
plt.show()

# %% [markdown]
# Top-k does not look at the model: 40 are too many where one is right. Top-p and min-p adapt. But
# look at temperature 1.5: top-p 0.9 lets thousands through, for the tail has grown and top-p counts
# mass. Min-p compares each token with the favourite, and few come near it.
#
# **Predict.** At temperature 2, which top-p keeps fewer than 10 tokens: 0.9, 0.5, or 0.1?
# *Your answer:*

# %%
# Experiment: temperature and top-p
heats = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0])
shares = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.85, 0.9, 0.95, 0.99, 1.0])
counts, bits = torch.zeros(9, 9), torch.zeros(9, 9)
for y, p in enumerate(shares):
    rows = keep_top_p(apply_temperature(logits.expand(9, -1), heats), p.expand(9))
    counts[y] = rows.isfinite().sum(-1)
    bits[y] = torch.special.entr(softmax(rows)).sum(-1) / torch.tensor(2.0).log()
for heat, p in (
    (0.1, 1.0),
    (0.5, 0.85),
    (1.0, 0.85),
    (1.0, 0.9),
    (1.5, 0.85),
    (2.0, 0.1),
    (2.0, 0.85),
):
    row = keep_top_p(apply_temperature(logits, torch.tensor([heat])), torch.tensor([p]))
    entropy = torch.special.entr(softmax(row)).sum() / torch.tensor(2.0).log()
    print(
        f"temperature {heat}, top-p {p:4}: {int(row.isfinite().sum()):6,} tokens, {entropy:5.2f} bits"
    )

# %%
# Experiment: the map of temperature and top-p
fig, axes = plt.subplots(1, 2, num="temperature_top_p", figsize=(11, 4), layout="constrained")
for ax, data, title in zip(axes, (counts, bits), ("tokens kept", "entropy (bits)"), strict=True):
    shade = data.log10() if data is counts else data
    ax.imshow(shade, cmap="Blues", origin="lower", aspect="auto")
    for y in range(9):
        for x in range(9):
            words = f"{int(data[y, x]):,}" if data is counts else f"{data[y, x]:.1f}"
            dark = shade[y, x] > 0.6 * shade.max()
            ax.text(
                x,
                y,
                words,
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    ax.set_xticks(range(9), [f"{v:g}" for v in heats.tolist()])
    ax.set_yticks(range(9), [f"{v:g}" for v in shares.tolist()])
    ax.set(title=title, xlabel="temperature", ylabel="top-p")
plt.show()

# %% [markdown]
# The lower left is one and the same: with one token kept the temperature does not matter any more,
# and with a low temperature top-p does not. Two knobs, and in half of the map they do nothing. Only
# at the upper right they multiply.
#
# ## 5.3 Penalties
#
# A small model falls into loops. A penalty lowers the logits of what was there before. Three kinds
# are in use, and they differ in what they count: the repetition penalty counts prompt and answer,
# presence and frequency only the answer.
#
# **Predict.** A repetition penalty of 2 meets the logits 2, 0.5 and -1, all seen before. What
# becomes of the last: -0.5 or -2? *Your answer:*

# %%
# include: penalize

# %%
check("5.3")

# %%
# include: TokenCounts, seen_tokens

# %%
# Experiment: penalties by hand
row = torch.tensor([[2.0, 0.5, -1.0, 3.0]])
seen = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), torch.tensor([3, 1, 0])
wishes = {"repetition 2": (2, 0, 0), "presence 1": (1, 1, 0), "frequency 0.5": (1, 0, 0.5)}
print("written 3, 1, 0 times; the last token was never there")
for label, numbers in wishes.items():
    columns = [torch.tensor([float(number)]) for number in numbers]
    print(f"{label:14}", penalize(row, *seen, *columns)[0].tolist())

# %% [markdown]
# A negative logit is multiplied: dividing it would bring it nearer to zero, which makes the token
# more likely. The third token stands in the prompt only, so presence and frequency leave it alone.
#
# ## 5.4 Draw
#
# Now all of it for a batch. Every row is another request, with its own parameters and its own random
# numbers. To draw, lay the probabilities end to end and see where a random number points.
#
# **Predict.** The probabilities are 0.665, 0.245, 0.090 and the number is 0.7. Which token?
# *Your answer:*

# %%
# include: SamplingState

# %%
# Experiment: what a request may ask for
print(textwrap.fill(f"without a wish: {SamplingParams()}", 96))
for wish in (SamplingParams(), SamplingParams(temperature=0), SamplingParams(presence_penalty=1)):
    print(f"is_greedy {wish.is_greedy!s:5}  has_penalties {wish.has_penalties}")

# %%
# include: new_generator, distributions, pick, sample

# %%
check("5.4")

# %%
# Experiment: where a number points
row = softmax(three)
for number in (0.0, 0.66, 0.67, 0.7, 0.92, 0.9999999):
    print(f"{number:<9} -> token {pick(row, torch.tensor([number], dtype=torch.float64)).item()}")

# %% [markdown]
# One draw proves nothing. Ten thousand do: how far are the counts from what they should be? The
# chi-square statistic adds up (counted - expected)² / expected. With eight tokens it is above 24.3 in
# one run of a thousand if the sampler is right.

# %%
# Experiment: ten thousand draws
eight = logits[:, order[:8]]
params = SamplingParams(temperature=1.5, seed=5)
share = distributions(eight, [SamplingState(params)])
draws = 10_000
numbers = torch.rand(draws, dtype=torch.float64, generator=new_generator(5))
counted = pick(share.expand(draws, -1), numbers).bincount(minlength=8)
expected = share[0] * draws
for token, wanted, came in zip(order[:8], expected.tolist(), counted.tolist(), strict=True):
    print(f"{name(token):10} expected {wanted:7.1f}   came {came:5}")
print(f"chi-square {((counted - expected) ** 2 / expected).sum():.1f}")

# %% [markdown]
# **Predict.** Two users share a batch. One asks for a seed. Does what the other does change the
# first one's draws? *Your answer:*

# %%
# Experiment: neighbours
wild = SamplingParams(temperature=1.5, seed=7)
others = [SamplingParams(temperature=0), SamplingParams(top_k=3), SamplingParams(top_p=0.5)]
alone = SamplingState(wild)
print("alone:      ", [sample(logits, [alone]).item() for _ in range(8)])
states = [SamplingState(p) for p in [*others, wild]]
drawn = [sample(logits.expand(4, -1), states) for _ in range(8)]
print("in a batch: ", [int(ids[3]) for ids in drawn])
print("greedy row: ", [int(ids[0]) for ids in drawn])

# %%
# Experiment: without a seed
fresh = [torch.rand(1, generator=torch.Generator()).item() for _ in range(3)]
print("three new torch.Generator():", [round(number, 6) for number in fresh])
fresh = [torch.rand(1, generator=new_generator(None)).item() for _ in range(3)]
print("three new_generator(None), all different:", len(set(fresh)) == 3)

# %% [markdown]
# A new generator of torch begins with the same seed each time. An engine that forgets this gives
# every user of a "random" request the same answer.
#
# Now to the loop. The next cell runs many requests in one batch, one forward a token for all of
# them; chapter 06 does it properly. Equal prompts are computed once and their keys and values copied.


# %%
def prefill(prompts, room):
    """A cache with a row for each prompt (a list of ids), and the logits of what comes next."""
    unique = sorted(set(map(tuple, prompts)))
    width, source = max(map(len, prompts)), [unique.index(tuple(p)) for p in prompts]
    tokens = torch.tensor([[0] * (width - len(p)) + [*p] for p in unique])
    at = torch.tensor([[-1] * (width - len(p)) + [*range(len(p))] for p in unique])
    small, cache = (KVCache(config, n, width + room) for n in (len(unique), len(prompts)))
    for row in range(len(unique)):
        small.reserve(row, width)
    logits = model.forward(tokens, at, small)
    for row, prompt_ids in enumerate(prompts):
        cache.reserve(row, len(prompt_ids) + room)
    for layer in range(config.num_hidden_layers):
        k, v, where = small.read(layer, torch.tensor(source))
        cache.write(layer, torch.arange(len(prompts)), where, k, v)
    return cache, logits[source]


# %%
def together(prompts, params):
    """The ids of an answer to each prompt, each by its own params, until the last one has ended."""
    limits, ends = [p.max_tokens for p in params], config.eos_token_ids
    cache, logits = prefill(prompts, max(limits))
    states = [SamplingState(*each) for each in zip(params, prompts, strict=True)]
    answers, running = [[] for _ in prompts], list(range(len(prompts)))
    while True:
        tokens = sample(logits, [states[row] for row in running]).tolist()
        for row, token in zip(running, tokens, strict=True):
            answers[row].append(token)
            states[row].add(token)
        running = [r for r in running if answers[r][-1] not in ends and len(answers[r]) < limits[r]]
        if not running:
            return answers
        newest = torch.tensor([[answers[row][-1]] for row in running])
        at = torch.tensor([[len(prompts[row]) + len(answers[row]) - 1] for row in running])
        logits = model.forward(newest, at, cache, torch.tensor(running))


# %% [markdown]
# **Predict.** Greedy, the model writes a list of fruits. Which penalty breaks the loop without
# breaking the list: repetition 1.1, repetition 1.5, presence 1, or frequency 0.5? *Your answer:*


# %%
# Experiment: a loop
def as_question(words, system=None):
    """The ids of a conversation with one question."""
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": words})
    return chat_ids(turns, text.encode, text.special)


greedy = SamplingParams(temperature=0, max_tokens=80)
wishes = {
    "none": {},
    "repetition 1.1": {"repetition_penalty": 1.1},
    "repetition 1.5": {"repetition_penalty": 1.5},
    "presence 1": {"presence_penalty": 1.0},
    "frequency 0.5": {"frequency_penalty": 0.5},
}
fruits = [as_question("Write a list of fruits.")] * len(wishes)
lists = together(fruits, [replace(greedy, **wish) for wish in wishes.values()])
for label, answer in zip(wishes, lists, strict=True):
    print(textwrap.fill(f"{label}: {text.decode(answer)}", 96, subsequent_indent="    "))

# %% [markdown]
# Read them aloud. Without a penalty the list turns in a circle. A strong one also punishes the
# asterisk, the newline and the comma, which a list needs, for a penalty knows ids and no grammar.
#
# ## 5.5 How sure was it
#
# Clients ask how sure the model was. The answer is about the model's own distribution, before
# penalties, temperature and filters: else a greedy request would always report certainty.
#
# **Predict.** The logits are 2, 1, 0. Which differences do the log-probabilities have?
# *Your answer:*

# %%
# include: log_probabilities

# %%
check("5.5")

# %%
# Experiment: how sure the model was
chosen, _, tops = log_probabilities(three, torch.tensor([1]), 3)
print("by hand: token 1 has", chosen.numpy().round(3), "and all three", tops[0].numpy().round(3))
said = text.encode(prompt + " Paris.\n\nThe answer is")
every = model.forward(torch.tensor([said]), torch.arange(len(said))[None], every_position=True)[0]
values, ids, tops = log_probabilities(every[4:-1], torch.tensor(said[5:]), 2)
for token, value, favourites in zip(said[5:], values.tolist(), ids.tolist(), strict=True):
    print(
        f"{name(token):10} {value:7.3f}   first choices {name(favourites[0])}, {name(favourites[1])}"
    )
print(f"the whole text: {values.sum():.2f}, a probability of {values.sum().exp():.4f}")

# %% [markdown]
# `report` is given: it asks for the log-probabilities only in those rows whose request wants them.

# %%
# include: TokenLogProbs, report

# %% [markdown]
# ## 5.6 Stop strings
#
# An end token ends the text, and so does a stop string that the caller named. A stop string knows
# nothing of tokens: it can span several, or end inside one. What could still become one must wait.
#
# **Predict.** The stop string is "\n\nThe". The pieces are "Paris.", "\n", "\n", "So". What is shown
# after each? *Your answer:*

# %%
# include: StopMatcher

# %%
check("5.6")

# %%
# Experiment: held back
pieces = ["Paris.", "\n", "\n", "So", "\n\n", "The end"]
matcher, so_far = StopMatcher(["\n\nThe"]), ""
for piece in pieces:
    shown = matcher.add(piece)
    so_far += shown
    print(f"came {piece!r:10} shown {shown!r}")
print(f"found {matcher.found!r}, the text is {so_far!r}, flush gives {matcher.flush()!r}")
naive = ""
for piece in pieces:
    naive += piece
    if "\n\nThe" in naive:
        break
print(f"sent by code that looks only after sending: {naive!r}")

# %% [markdown]
# **Predict.** "aabaab" with the stop strings "abaa" and "bb" can be cut into pieces in 32 ways. How
# many different texts come out? *Your answer:*


# %%
# Experiment: every way to cut
def matched(pieces, stops):
    """The text of pieces up to a stop string."""
    matcher = StopMatcher(stops)
    return "".join([*map(matcher.add, pieces), matcher.flush()])


for whole, stops in (
    ("aabaab", ["abaa", "bb"]),
    ("the sun, then", ["then", "n,"]),
    ("aaab", ["ab"]),
):
    ways = range(2 ** (len(whole) - 1))
    cuts = [[i + 1 for i in range(len(whole)) if way >> i & 1] for way in ways]
    pieces = [[whole[a:b] for a, b in zip([0, *c], [*c, None], strict=True)] for c in cuts]
    print(f"{whole!r}, stops {stops}: {len(ways)} ways,", {matched(p, stops) for p in pieces})

# %% [markdown]
# One text each, however it came. That is the promise to a client: streamed and unstreamed are equal.
#
# ## 5.7 Tokens to text
#
# A token is a piece of bytes, not of characters. A parrot is one character of four bytes in three
# tokens. Decoded one by one they are three question marks.
#
# **Predict.** The tokens are ' ' + F0 9F, A6, 9C and '!'. What may be shown after each?
# *Your answer:*

# %%
# include: Detokenizer, Answer

# %%
check("5.7")

# %%
# Experiment: a parrot
parrot = text.encode("A parrot: \N{PARROT}!")
stream, pieces = Detokenizer(text.token_bytes), []
for token in parrot:
    data = text.token_bytes(token)
    pieces.append(stream.add(token))
    print(
        f"{token:6}  {data.hex(' '):20} alone {data.decode('utf-8', 'replace')!r:11} shown {pieces[-1]!r}"
    )
pieces.append(stream.flush())
print(f"joined {''.join(pieces)!r}; cut before {parrot[-2]}:", end=" ")
cut = Detokenizer(text.token_bytes)
print(repr("".join([*map(cut.add, parrot[:-2]), cut.flush()])))

# %% [markdown]
# At the very end an unfinished character is flushed as one U+FFFD: nothing is lost in silence.
#
# `Answer` puts it together: ids in, text out, and a reason for the end. Here is the running example
# with a stop string that is four tokens long.

# %%
# Experiment: an answer ends
said = together([text.encode(prompt)], [replace(greedy, max_tokens=8)])[0]
answer = Answer(Detokenizer(text.token_bytes), 8, config.eos_token_ids, ["\n\nThe answer"])
for token in said:
    shown = answer.add(token)
    print(f"{name(token):10} shown {shown!r:9} finish reason {answer.finish_reason}")
    if answer.finish_reason:
        break
for stops in ([], ["ari"]):
    answer, texts = Answer(Detokenizer(text.token_bytes), 3, config.eos_token_ids, stops), []
    while answer.finish_reason is None:
        texts.append(answer.add(said[len(answer.ids)]))
    print(f"stops {stops}: {''.join(texts)!r}, {answer.finish_reason!r}")

# %% [markdown]
# `generate` is given: chapter 04's loop with your sampler in the place of argmax, and with text.

# %%
# include: Completion, next_logits, tell

# %%
# include: generate

# %%
# Experiment: your own engine answers
asked = as_question("What is the capital of France?")
cache = KVCache(config, rows=1, max_length=128)
wishes = {
    "greedy": SamplingParams(temperature=0),
    "0.5, top-p 0.85": SamplingParams(temperature=0.5, top_p=0.85, seed=1),
    "1, seed 1": SamplingParams(seed=1),
    "1, seed 2": SamplingParams(seed=2),
}
for label, wish in wishes.items():
    wish, stream = replace(wish, max_tokens=24, stop=["\n"]), Detokenizer(text.token_bytes)
    done = generate(model, asked, wish, stream, config.eos_token_ids, cache)
    print(f"{label:16} {done.text!r}\n{'':16} {len(done.ids)} tokens, {done.finish_reason!r}")

# %% [markdown]
# A question with one right answer gains nothing from a draw. Others do: a story, a greeting, a list of
# ideas. The parameters belong to the question, and that is why each request brings its own.
#
# ## 5.8 Compare settings
#
# "0.1 is rigid, 0.5 with top-p 0.85 suits support chat." How would you know? Ask the same questions
# at several settings with several seeds, count what can be counted, and let a person judge the rest
# without knowing which is which.
#
# **Predict.** How many different words of all words has "the cat sat on the mat"? And "no no no no"?
# *Your answer:*

# %%
# include: Trial, Score

# %%
# include: distinct, repeated, compare, scores, blind_table

# %%
check("5.8")

# %%
# Experiment: variety by hand
for words in ("the cat sat on the mat", "no no no no"):
    print(
        f"{words!r}: distinct-1 {distinct([words], 1):.3f}, distinct-2 {distinct([words], 2):.3f},",
        end=" ",
    )
    print(f"repeated {repeated(words, 3):.2f}")
print("twice the same answer, distinct-1:", distinct(["the cat sat", "the cat sat"], 1))

# %% [markdown]
# Now the claim, on four questions to a shop, five settings and three seeds: 60 answers in one batch,
# each row with parameters of its own.
#
# **Predict.** Three answers to a question can repeat the first five words of another one twice, so all
# questions together eight times. How often do they at temperature 0.1? And at 1? *Your answer:*

# %%
# Experiment: sixty answers
questions = (
    "Where is my order?",
    "Can I return shoes that I have worn?",
    "My parcel arrived damaged. What now?",
    "Do you ship to Norway?",
)
base, seeds = SamplingParams(max_tokens=24), (1, 2, 3)
settings = {
    "0.1": replace(base, temperature=0.1),
    "0.5, top-p 0.85": replace(base, temperature=0.5, top_p=0.85),
    "1, top-p 0.85": replace(base, temperature=1.0, top_p=0.85),
    "1": replace(base, temperature=1.0),
    "1.5": replace(base, temperature=1.5),
}
asks = [(q, replace(p, seed=s)) for q in questions for p in settings.values() for s in seeds]
shop = "You answer the customers of a shoe shop."
answers = together([as_question(q, shop) for q, _ in asks], [p for _, p in asks])
answered = {ask: text.decode(answer) for ask, answer in zip(asks, answers, strict=True)}
print(f"{len(answered)} answers of {sum(map(len, answers)):,} tokens in all")

# %%
# Experiment: variety and repetition
trials = compare(lambda q, params: answered[q, params], questions, settings, seeds)
print("setting          distinct-1  distinct-2  repeated  words  repeated beginnings")
for setting, score in scores(trials).items():
    openings = {(t.question, *t.text.split()[:5]) for t in trials if t.setting == setting}
    same = len(questions) * len(seeds) - len(openings)
    numbers = f"{score.distinct_1:10.2f}  {score.distinct_2:10.2f}  {score.repeated:8.3f}"
    print(
        f"{setting:15}  {numbers}  {score.words:5.1f}  {same} of {len(questions) * (len(seeds) - 1)}"
    )

# %% [markdown]
# **Predict.** At how many steps is there a choice at all? Count those at which the favourite has less
# than 99 % under a setting: at 0.1, at 0.5 with top-p 0.85, and at 1. *Your answer:*


# %%
# Experiment: where there is a choice
def favourites(ids, start, params):
    """What the most probable token has, at each step from `start` on, under the params."""
    span = torch.arange(len(ids))[None]
    every = model.forward(torch.tensor([ids]), span, every_position=True)[0, start - 1 : -1]
    return distributions(every, [SamplingState(params)] * len(every)).amax(-1)


for setting, params in settings.items():
    shares = []
    for (question, wish), answer in zip(asks, answers, strict=True):
        if wish == replace(params, seed=1):
            before = as_question(question, shop)
            shares.append(favourites([*before, *answer], len(before), params))
    open_steps = (torch.cat(shares) < 0.99).float().mean()
    print(f"{setting:15}  a choice at {open_steps:4.0%} of the steps")

# %%
# Experiment: a table to rate
table, key = blind_table([t for t in trials if t.question == questions[1] and t.seed < 3], seed=2)
print(table, end="")

# %% [markdown]
# Write a rating from 1 to 5 into each row before you look at the key.

# %%
# Experiment: the key
for number, trial in enumerate(key, 1):
    print(f"{number:2}: {trial.setting}, seed {trial.seed}")

# %% [markdown]
# ## What it costs
#
# **Predict.** A step of the model takes some 50 ms for one row. What share of that does the sampler
# add, and which parameter costs most? *Your answer:*


# %%
def milliseconds(call, budget=0.3):
    """The quickest of at least three calls within a budget: other programs only add time."""
    taken = []
    while len(taken) < 3 or sum(taken) < budget:
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken)


costs = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "with top-k 40": SamplingParams(temperature=0.8, top_k=40),
    "with min-p 0.1": SamplingParams(temperature=0.8, min_p=0.1),
    "with top-p 0.9": SamplingParams(temperature=0.8, top_p=0.9),
    "with a repetition penalty": SamplingParams(temperature=0.8, repetition_penalty=1.1),
}


# %%
# Experiment: sampling beside a decode step
def cost(rows):
    """Milliseconds of one step of the model, and of each kind of sampling, by name."""
    cache, first = prefill([asked] * rows, room=8)
    newest, at = first.argmax(-1, keepdim=True), torch.full((rows, 1), len(asked))
    step, taken = milliseconds(lambda: model.forward(newest, at, cache)), {}
    for label, wish in costs.items():
        states = [SamplingState(wish, asked) for _ in range(rows)]
        taken[label] = milliseconds(functools.partial(sample, first, states))
    return step, taken


for rows in (1, 16):
    step, taken = cost(rows)
    print(f"rows {rows}: the model takes {step:.1f} ms")
    for label, ms in taken.items():
        print(f"   {label:25} {ms:7.2f} ms  {ms / step:6.1%}")

# %%
# Experiment: what top-p has to sort
for label, row in (("sure", logits), ("unsure", unsure)):
    for temperature in (1.0, 1.5):
        q = heated(row, temperature)
        likely, ordered = int((q >= 0.1 / len(q)).sum()), q.sort(descending=True).values
        stay = int((ordered.cumsum(0) - ordered < 0.9).sum())
        print(f"{label:7} temperature {temperature}: {likely:6,} to sort, {stay:5,} stay")
whole = logits.expand(16, -1).contiguous()
ms = milliseconds(lambda: whole.sort(dim=-1, descending=True, stable=True))
print(f"sorting all of 16 rows: {ms:.0f} ms")

# %% [markdown]
# Last, the field's folklore about this layer beside what your machine says.

# %%
# Experiment: claimed beside measured
found = scores(trials)
low, support, plain = (found[setting] for setting in ("0.1", "0.5, top-p 0.85", "1"))
print("claimed: temperature 0.1 is rigid")
print(f"   here: {low.distinct_2:.0%} of the word pairs in answers to one question are different,")
print(f"         at temperature 1: {plain.distinct_2:.0%}")
print("claimed: temperature 0.5 with top-p 0.85 suits support chat")
print(
    f"   here: {support.distinct_2:.0%} of the pairs are different, {support.repeated:.1%} repeated;"
)
print("         whether the answers suit is for the reader of the blind table to say")

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You have a token for every row of a batch, each by the wishes of its own request, and text that can
# be shown. Chapter 06 decides which requests share the batch, and when.
