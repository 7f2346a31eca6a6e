# %% [markdown]
# # 03 · The quantizer
#
# Decoding reads every weight once for each token, so bytes are time. A weight has 32 bits. Most of
# them say little. You write a quantizer that keeps 8, 4, 3 or 2 of them, put a whole model through
# it without ever holding that model in memory, and measure what was lost. Then you find out why
# your best number was too good.
#
# The reading is in `chapters/03_quantizer/README.md`; its sections are named like the parts below.
# Cells that begin with `#| exercise` are yours to fill in. Run the cells from the top, in order.
# Stuck? `hint("3.1")` gets closer each time; `solution("3.1")` shows one answer.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# Two of these come from chapter 02, and 3.6 needs them: `read_safetensors(path)` gives every tensor
# of a file by its name, as views of the mapped file; `read_header(path)` has the file's `metadata`,
# a dict of text. Both raise FileNotFoundError or ValueError.

# %% [markdown]
# ## The running example
#
# One prompt goes through the whole course: `The capital of France is`. Chapter 02 brought its five
# rows of the embedding into memory. What comes next are products with 210 matrices.

# %%
import os
import tempfile
import time

import matplotlib.pyplot as plt
from safetensors.torch import load_file

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on stderr otherwise
from torch.profiler import ProfilerActivity, profile

from course.paths import MODEL, MODELS, ROOT
from course.text import Text
from solutions.forward_pass import Llama
from solutions.loader import read_config, stored_tensors

text, config = Text(MODEL), read_config(MODEL)
stored = stored_tensors(MODEL, config)  # views of the mapped file, from chapter 02
ids = text.encode("The capital of France is")
x = stored["model.embed_tokens.weight"][ids].float()
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # for files made below
scratch = Path(room.name)
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes

# %%
# Experiment: what a token reads
matrices = {n: w for n, w in stored.items() if w.ndim == 2 and n != "model.embed_tokens.weight"}
weights_read = sum(w.numel() for w in matrices.values())
table_read = stored["model.embed_tokens.weight"].numel()
print(f"{len(matrices)} matrices of the layers: {weights_read:,} weights")
print(f"the embedding, which is the head too: {table_read:,}")
everything = 4 * (weights_read + table_read)
print(f"a token reads {everything / 1e6:.0f} MB in float32")
for bits in (16, 8, 4, 2):
    size = weights_read * bits / 8 + 4 * table_read
    print(f"the layers at {bits:2} bits: {size / 1e6:4.0f} MB, {size / everything:.0%}")

# %%
# Experiment: one matrix
up_name = "model.layers.2.mlp.up_proj.weight"
matrix = stored[up_name].float()
fig, ax = plt.subplots(num="histogram", figsize=(7, 3), layout="constrained")
counts, edges, _ = ax.hist(matrix.flatten().numpy(), bins=201, color=BLUE, log=True)
step = float(matrix.abs().max()) / 7
for level in range(-7, 8):
    line = ax.axvline(level * step, color=ORANGE, lw=1)
ax.set(xlabel="weight", ylabel="how many")
ax.legend([line], ["15 values, one scale"])
plt.show()
rms, largest = float(matrix.square().mean().sqrt()), float(matrix.abs().max())
print(f"{matrix.numel():,} weights: root mean square {rms:.3f}, largest {largest:.3f}")
within = float(((matrix / step).round() == 0).float().mean())
print(f"with one scale for all and 4 bits, {within:.0%} of them would become 0")

# %% [markdown]
# Nearly all weights are small and a few are large. One scale for the whole matrix would be made for
# the few. So each *row* gets a scale of its own to begin with.
#
# ## 3.1 One scale a row
#
# Eight numbers, 4 bits, by hand. Symmetric means: whole numbers from -7 to 7, and zero stays zero.
#
# **Predict.** The largest absolute value is 1.4. What is the scale? What becomes of 0.36? *Your
# answer:*

# %%
# Experiment: eight numbers, symmetric
eight = torch.tensor([[0.85, -0.27, 0.05, -1.4, 0.36, 1.0, -0.55, 0.0]])
scale = eight.abs().max() / 7
q = (eight / scale).round().int()
again = scale * q
print("scale:", round(scale.item(), 4))
print("w    :", *(f"{n:5.2f}" for n in eight[0].tolist()))
print("q    :", *(f"{n:5}" for n in q[0].tolist()))
print("again:", *(f"{n:5.2f}" for n in again[0].tolist()))
print(f"largest error {(again - eight).abs().max():.3f}; half a step is {scale / 2:.3f}")

# %% [markdown]
# Rounding to the nearest is never off by more than half a step. Now with 8 bits, -127 to 127, and a
# whole matrix at once. `check_matrix` is given: one infinity would be the scale of its whole row.

# %%
# include: GROUP_BITS, PER_BYTE

# %%
# include: check_matrix

# %%
# include: quantize_rows

# %%
check("3.1")

# %%
# Experiment: one scale a row
q, scale = quantize_rows(matrix)
off = (scale * q - matrix).abs() / scale  # in steps
print(f"q {q.dtype} {list(q.shape)}, scale {scale.dtype} {list(scale.shape)}")
print(f"off by {off.max():.4f} steps at most, by {off.mean():.4f} in the mean")
print(f"scales from {scale.min():.5f} to {scale.max():.5f}")
rows = torch.tensor([[0.0, 0.0], [1e-45, 0.0], [3.0, -4.0]])
print("zeros, a denormal, (3, -4):", quantize_rows(rows)[0].tolist())

# %% [markdown]
# **Predict.** `.to(torch.int8)` on its own cuts the fraction off. How much larger is the mean error
# than with rounding? Are the weights then too large or too small? *Your answer:*

# %%
# Experiment: cut instead of rounded
for label, made in (("rounded", (matrix / scale).round()), ("cut", (matrix / scale).trunc())):
    off = (scale * made - matrix).abs() / scale
    size = (scale * made).norm() / matrix.norm()
    print(f"{label:8} mean error {off.mean():.3f} steps, the matrix becomes {size:.4f} as large")

# %% [markdown]
# Cut, every weight moves towards zero. Such errors do not cancel in a sum of 576 products.
#
# ## 3.2 Groups with a minimum
#
# Symmetric wastes values where the numbers are not symmetric: above, nothing was near +1.4. Affine
# uses the whole range from the smallest to the largest number: 16 values, 15 steps.
#
# **Predict.** The same eight numbers lie between -1.4 and 1.0. What is the step now? And what does
# 0.0 become? *Your answer:*

# %%
# Experiment: eight numbers, affine
lo, hi = eight.min(), eight.max()
scale = (hi - lo) / 15
q = ((eight - lo) / scale).round().int()
again = scale * q + lo
print(f"scale {scale:.4f}, minimum {lo:.4f}")
print("w    :", *(f"{n:5.2f}" for n in eight[0].tolist()))
print("q    :", *(f"{n:5}" for n in q[0].tolist()))
print("again:", *(f"{n:5.2f}" for n in again[0].tolist()))
print(f"largest error {(again - eight).abs().max():.3f}; half a step is {scale / 2:.3f}")

# %% [markdown]
# A smaller step, and zero is no longer exactly zero. For weights that is no loss.
#
# The second idea is to let fewer numbers share a scale. Groups of 32 instead of a row of 576 cost
# 18 scales and 18 minimums a row. They are stored in float16, and here is the trap of this
# exercise: q must be made for the scale that is *stored*.

# %%
# include: quantize_groups

# %%
check("3.2")

# %%
torch.manual_seed(3)
drawn = torch.randn(256, 576) * 0.1  # knows nothing of any grid


def read_groups(q, scale, minimum, size):
    """scale * q + minimum, [out, 576], and the step of each number, [out, 576]."""
    scale, minimum = (part.float()[..., None] for part in (scale, minimum))
    wide = q.unflatten(1, (-1, size)) * scale + minimum
    return wide.flatten(1)[:, :576], scale.expand_as(wide).flatten(1)[:, :576]


# %%
# Experiment: half a step
print("                 largest error, in steps, of q made for")
print("bits  group   the stored scale   the exact scale   error / size")
for bits, size in ((8, 32), (4, 32), (4, 128), (4, 576), (3, 32), (2, 32)):
    q, scale, minimum = quantize_groups(drawn, bits, size)
    again, steps = read_groups(q, scale, minimum, size)
    exact_q = quantize_groups(drawn, bits, size, torch.float32)[0]
    late, _ = read_groups(exact_q, scale, minimum, size)  # scale rounded after q was made
    right, wrong = (float(((made - drawn).abs() / steps).max()) for made in (again, late))
    error = (again - drawn).norm() / drawn.norm()
    print(f"{bits:4} {size:6} {right:15.3f} {wrong:17.3f} {error:16.4f}")

# %% [markdown]
# Never more than half a step, if q is made for what is stored. At 8 bits the steps are so small
# that the rounding of scale and minimum to float16 shows.
#
# **Predict.** A row of 576 numbers of about 0.1 gets one of 3.0. Which weights suffer with one
# scale a row? Which with groups of 32? *Your answer:*

# %%
# Experiment: one outlier
row, spoilt = drawn[:1], drawn[:1].clone()
spoilt[0, 200] = 3.0
others = torch.arange(576) != 200
errors = {}
print(f"{'error of the other 575':24}{'without':>10}{'with the outlier':>18}")
for size in (576, 128, 32):
    found = []
    for numbers in (row, spoilt):
        again, _ = read_groups(*quantize_groups(numbers, 4, size), size)
        errors[size] = (again - numbers)[0]
        found.append(errors[size][others].norm() / numbers[0, others].norm())
    print(f"4 bits, groups of {size:<6}{found[0]:10.3f}{found[1]:18.3f}")

# %%
# Experiment: the plot of one outlier
fig, ax = plt.subplots(num="outlier", figsize=(7, 3), layout="constrained")
ax.plot(errors[576].abs(), ".", color=ORANGE, ms=4, label="one scale for the row")
ax.plot(errors[32].abs(), ".", color=BLUE, ms=4, label="groups of 32")
ax.axvline(200, color="black", lw=1, ls=":", label="the outlier")
ax.set(xlabel="column", ylabel="absolute error")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, fontsize=8)
plt.show()


def most_extreme(w):
    """The largest weight of any row, in root mean squares of its row; and that row."""
    ratio, at = (w.abs().amax(1) / w.square().mean(1).sqrt()).max(0)
    return float(ratio), int(at)


extremes = {name: most_extreme(w) for name, w in matrices.items()}
worst = max(extremes, key=extremes.get)
print(f"in this model: row {extremes[worst][1]} of {worst}")
print(f"has a weight {extremes[worst][0]:.0f} times the root mean square of its row")

# %% [markdown]
# An outlier spoils the steps of its own group and no others.
#
# ## 3.3 Several numbers in a byte
#
# q has 4 bits, but uint8 is the smallest type there is. So two of them go into one byte, the first
# in the lowest bits: byte = first + 16 * second.
#
# **Predict.** The affine q above were 14 7 9 0 11 15 5 9. What is the first byte, in hexadecimal?
# *Your answer:*

# %%
# include: pack, unpack

# %%
check("3.3")

# %%
# Experiment: nibbles
q, scale, minimum = quantize_groups(eight, 4, 8)
print("q      :", q[0].tolist())
for bits in (8, 4, 2):
    packed = pack(q & (2**bits - 1), bits)
    print(f"{bits} bits : {packed.shape[1]} bytes, {bytes(packed[0].tolist()).hex(' ')}")
print("back   :", unpack(pack(q, 4), 4, 8)[0].tolist())
three = pack(torch.tensor([[1, 2, 3, 4, 5]], dtype=torch.uint8), 3)
print(f"five numbers of 3 bits: {three.shape[1]} bytes, {bytes(three[0].tolist()).hex(' ')}")

# %% [markdown]
# Three bits take the room of four here. Eight 3-bit numbers fit into three bytes, but some of them
# lie across the border of two. Nobody gains from 3 bits until somebody writes that.
#
# ## 3.4 A quantized weight
#
# Now q, scale and minimum become one thing, so that the rest of the engine need not know. The one
# function that knows is `linear`. Chapter 04's model takes it as an argument.

# %%
# include: Format

# %%
# include: QuantizedTensor, quantize, linear

# %%
check("3.4")

# %%
# Experiment: a quantized weight
weight = quantize(eight, Format(4, 8))
print(weight.data.tolist(), weight.scale.tolist(), weight.minimum.tolist(), weight.shape)
print("again:", *(f"{n:.2f}" for n in weight.dequantize()[0].tolist()))
exact = linear(x, matrix)
print(f"{'the product with the prompt':30}{'bytes':>10}{'bits':>7}{'error':>9}")
print(f"{'float32':30}{matrix.nbytes:10,}{32:7.2f}{0:9.4f}")
for format in (Format(8), Format(8, 64), Format(4, 64), Format(3, 64), Format(2, 64)):
    weight = quantize(matrix, format)
    error = (linear(x, weight) - exact).norm() / exact.norm()
    bits = 8 * weight.nbytes / matrix.numel()
    print(f"{format!s:30}{weight.nbytes:10,}{bits:7.2f}{error:9.4f}")

# %% [markdown]
# The bits count the scales too: a group of 64 adds 32 bits, half a bit a weight.
#
# **Predict.** The 4-bit weights are a seventh of the bytes. Is the product of a single token now
# (a) faster, (b) as fast, (c) slower? *Your answer:*


# %%
def seconds(call, budget=0.3):
    """The quickest of at least three calls within a budget: other programs only add time."""
    taken = []
    while len(taken) < 3 or sum(taken) < budget:
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken)


# %%
# Experiment: the time of a product
some = [w for n, w in matrices.items() if ".mlp.up_proj" in n]  # one of each layer, 106 MB
one_token = torch.randn(1, 576)
base = None
print(f"{'30 products, one token':26}{'MB':>7}{'ms':>8}{'GB/s':>7}{'time':>8}")
for format in (None, Format(8), Format(8, 64), Format(4, 64), Format(2, 64)):
    held = [quantize(w, format) for w in some] if format else some
    took = seconds(lambda held=held: [linear(one_token, w) for w in held])
    base = base or took
    size, label = sum(w.nbytes for w in held), str(format or "float32")
    print(f"{label:26}{size / 1e6:7.1f}{1000 * took:8.1f}{size / took / 1e9:7.1f}", end="")
    print(f"{took / base:7.1f}x")

# %% [markdown]
# int8 rows need one conversion, and can win. Packed groups lose: `linear` takes the bytes apart,
# writes the whole weight out as floats and reads it again, so a token moves more bytes than before.
# Fewer bits save memory now. They save time once unpacking and multiplying are one loop, and that
# loop is chapter 09's.
#
# ## 3.5 One tensor at a time
#
# Some tensors stay as they are: norms, embedding, head. And the way there matters. Whoever reads
# the whole model and quantizes it then, needs the room of the whole model.
#
# **Predict.** The model has 538 MB, the quantized matrices 66 MB. What is the least memory that
# anyone can do it in: about 540, about 600, or about 80 MB? *Your answer:*

# %%
# include: is_quantizable, quantize_weights

# %%
check("3.5")

# %%
# Experiment: what is left alone
kinds = {True: [], False: []}
for name, weight in stored.items():
    kinds[is_quantizable(name, tuple(weight.shape))].append(weight.numel())
print(f"quantized : {len(kinds[True]):3} tensors, {sum(kinds[True]):11,} weights")
print(f"left alone: {len(kinds[False]):3} tensors, {sum(kinds[False]):11,} weights")
norms = [weight.numel() for weight in stored.values() if weight.ndim == 1]
print(f"of which norms: {len(norms)} tensors, {sum(norms):,} weights")


# %% [markdown]
# To see the peak, count bytes. torch's profiler tells of every piece of memory that a tensor takes
# and gives back. A mapped file is not among them: its pages belong to the system.


# %%
def live_bytes(call):
    """What a call returns; times (s) and bytes alive beyond those before, at every change."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        value = call()
    found = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]")
    times, alive = [0.0], [0]
    for moment, change in changes:
        times.append((moment - changes[0][0]) / 1e9)
        alive.append(alive[-1] + change)
    return value, times, alive


no_table = {n: w for n, w in stored.items() if n != "model.embed_tokens.weight"}


def read_first():
    """The naive way: all tensors in memory, then quantized."""
    whole = {name: tensor.clone() for name, tensor in no_table.items()}
    return quantize_weights(whole, Format(4, 32))


# %%
# Experiment: memory while quantizing
fig, ax = plt.subplots(num="memory", figsize=(7, 3), layout="constrained")
ways = {"read first": read_first, "one by one": lambda: quantize_weights(no_table, Format(4, 32))}
for (label, way), colour, style in zip(ways.items(), (ORANGE, BLUE), ("--", "-"), strict=True):
    result, times, alive = live_bytes(way)
    share = [100 * t / times[-1] for t in times]
    ax.plot(share, [n / 1e6 for n in alive], style, color=colour, lw=1.2, label=label)
    highest = max(alive) / 1e6
    print(f"{label}: {highest:5.0f} MB at its highest")
made_mb = sum(w.nbytes for w in result.values() if isinstance(w, QuantizedTensor)) / 1e6
copies = 8 * 4 * max(w.numel() for w in matrices.values()) / 1e6  # what the docstring allows
print(f"result {made_mb:.1f} MB + eight copies of the largest matrix {copies:.1f} MB", end="")
print(f" = {made_mb + copies:.1f} MB; one by one took {highest:.1f}")
ax.set(xlabel="part of the run (%)", ylabel="memory of tensors (MB)")
ax.legend(loc="center")
plt.show()
del result

# %% [markdown]
# The teeth of the lower curve are one matrix after the other: widened, quantized, gone. What stays
# is the slope, the result. The embedding is left out of both: 113 MB for whoever copies it, nothing
# for whoever leaves it a view of the mapped file.
#
# Now all the formats that we shall judge.
#
# **Predict.** From 8 bits to 4, in groups of 32, the matrices lose 44 % of their bytes. How many
# percent does the whole model lose, and why? *Your answer:*

# %%
FORMATS = [Format(8), Format(8, 32), Format(4, 32), Format(4, 128), Format(3, 32), Format(2, 32)]
shelf = {format: quantize_weights(stored, format) for format in FORMATS}

# %%
# Experiment: sizes
print(f"{'':24}{'computed':>10}{'measured':>10}{'layers':>9}{'whole':>9}")
for format, made in shelf.items():
    width = format.group_size or 576  # numbers that share 32 bits of scale and minimum
    computed = 8 / PER_BYTE[format.bits] + 32 / width
    layers = sum(w.nbytes for w in made.values() if isinstance(w, QuantizedTensor))
    whole = sum(w.nbytes for w in made.values())
    print(f"{format!s:24}{computed:10.3f}{8 * layers / weights_read:10.3f}", end="")
    print(f"{layers / 1e6:6.1f} MB{whole / 1e6:6.1f} MB")
print("computed, measured: bits a weight, scales and minimums included")

# %%
# Experiment: one token of the whole model
one, first = torch.tensor([[ids[0]]]), torch.tensor([[0]])
for label, weights in {"float32": stored, **shelf}.items():
    model = Llama(config, weights, linear)
    took = seconds(lambda model=model: model.forward(one, first))
    size = sum(w.nbytes for w in weights.values())
    print(f"{label!s:22} {size / 1e6:4.0f} MB {1000 * took:6.0f} ms {1 / took:6.1f} tokens/s")

# %% [markdown]
# The whole model lost 23 %. The embedding stays: 113 MB in float32, more than all the 4-bit
# matrices. In a small model with a large vocabulary it is what remains. In a 13B model it is 2 or
# 3 %. Times like these need a quiet machine.
#
# ## 3.6 Saved and read back
#
# Quantizing takes seconds here and many minutes for a large model. So it is done once. The file is
# a .safetensors file like any other, and its metadata say which parts make a weight.

# %%
# include: stored_parts

# %%
# include: FORMAT_NAME, VERSION, read_layout, layout_entry

# %%
# include: save_quantized, load_quantized

# %%
check("3.6")

# %%
# Experiment: saved and read back
for format in (Format(8), Format(4, 32), Format(2, 32)):
    path = scratch / "quantized.safetensors"
    save_quantized(path, shelf[format])
    began = time.perf_counter()
    loaded = load_quantized(path)
    took = time.perf_counter() - began
    inside = sum(weight.nbytes for weight in loaded.values())
    size = path.stat().st_size
    print(f"{format!s:22} file {size:11,} bytes, tensors {inside:11,}, {1000 * took:.0f} ms")
head = read_header(path)
for entry in head.entries:
    if ".0.mlp.up_proj" in entry.name:
        print(f"{entry.name}: {entry.dtype} {list(entry.shape)}")
print("metadata:", head.metadata["format"], head.metadata["version"], head.metadata["tensors"][:87])
del loaded

# %% [markdown]
# Nothing is copied by loading: the parts are views of the mapped file.
#
# **Predict.** A file says of a weight that it has 2 bits, but it was packed with 4. Everything is
# there and the file is whole. What would happen without a check? *Your answer:*


# %%
def altered(change, name="altered.safetensors"):
    """A small saved file with its tensors and metadata changed by `change(tensors, metadata)`."""
    good = scratch / "small.safetensors"
    save_quantized(good, {"a.weight": quantize(eight, Format(4, 8)), "norm.weight": torch.ones(8)})
    tensors, metadata = load_file(good), dict(read_header(good).metadata)
    change(tensors, metadata)
    save_file(tensors, scratch / name, metadata)
    return scratch / name


def refusal(path):
    """What load_quantized says when it refuses a file, without the folder."""
    try:
        load_quantized(path)
    except ValueError as problem:
        return str(problem).replace(f"{path}: ", "")
    return "accepted"


# %%
# Experiment: files that are refused
print("unchanged    :", refusal(altered(lambda tensors, metadata: None)))
print("another file :", refusal(MODEL / "model.safetensors"))
print("newer        :", refusal(altered(lambda t, m: m.update(version="2"))))
lie = {"tensors": '{"a.weight": {"bits": 2, "group_size": 8, "shape": [1, 8]}}'}
print("bits that lie:", refusal(altered(lambda t, m: m.update(lie))))
print("a part less  :", refusal(altered(lambda t, m: t.pop("a.weight.scale"))))
cut = altered(lambda t, m: None)
cut.write_bytes(cut.read_bytes()[:-4])
print("cut short    :", refusal(cut))

# %% [markdown]
# Two bits out of nibbles: half the bytes would be read as four weights each and the rest never. The
# shapes give it away.
#
# ## 3.7 What it costs
#
# Four questions, from near to far. How far are the weights off? How far the logits? How much more
# does a text surprise the model? How often would it choose another token?
#
# Perplexity is $e$ to the mean of $-\log p$ of the tokens that really came. Sure and right is 1. A
# guess among V tokens is V.
#
# **Predict.** A model gives the right token the probabilities 1/2, 1/8 and 1/4. What is its
# perplexity? *Your answer:*

# %%
# include: LogitsOf

# %%
# include: relative_error, perplexity, agreement

# %%
check("3.7")

# %%
# Experiment: perplexity by hand
chances = [[0.5, 0.5 / 3, 0.5 / 3, 0.5 / 3], [0.125, 0.625, 0.125, 0.125], [0.25] * 4, [0.25] * 4]
logits = torch.tensor(chances).log()
three_steps = torch.tensor([3, 0, 2, 1])  # token 0 came with 1/2, 2 with 1/8, 1 with 1/4
print(f"1/2, 1/8, 1/4: {perplexity(lambda part: logits, three_steps, 4, 1):.3f}")
guess = perplexity(lambda part: torch.zeros(len(part), 49152), torch.arange(20), 8, 4)
print(f"all tokens alike: {guess:.0f}")

# %% [markdown]
# Now the model. The text is `chapters/03_quantizer/text.txt`, written for this course. For
# measuring, the weights are read back into floats once: the arithmetic is the same and does not
# unpack anew for every call.

# %%
story = (ROOT / "chapters" / "03_quantizer" / "text.txt").read_text(encoding="utf-8")
story_ids = torch.tensor(text.encode(story))


def floats(weights):
    """The weights as the model sees them."""
    return {n: w if isinstance(w, Tensor) else w.dequantize() for n, w in weights.items()}


def model_of(weights):
    """ids [T] -> logits [T, V]."""
    model = Llama(config, weights, linear)

    def logits_of(ids):
        return model.forward(ids[None], torch.arange(len(ids))[None], every_position=True)[0]

    return logits_of


# %%
def costs(weights):
    """Logits on the text, and a line of the table, for weights that are floats."""
    found = logits.get("float32") if weights is stored else model_of(weights)(part)
    error = sum(relative_error(w, weights[n]) for n, w in matrices.items()) / len(matrices)
    surprise = perplexity(lambda ids: found, part, 256, 255)
    off, same = relative_error(logits["float32"], found), agreement(logits["float32"], found)
    return found, f"{error:9.4f}{off:9.4f}{surprise:12.2f}{same:8.1%}"


part = story_ids[:256]
logits = {"float32": model_of(stored)(part)}
HEADING = f"{'weights':>9}{'logits':>9}{'perplexity':>12}{'agree':>8}   (256 tokens)"


# %%
# Experiment: what it costs
print(f"{'':24}{HEADING}")
print(f"{'float32':24}{costs(stored)[1]}")
for format, weights in shelf.items():
    logits[format], line = costs(floats(weights))
    print(f"{format!s:24}{line}")

# %% [markdown]
# Look at the third format, 4 bits in groups of 32. It has half the bits of int8 and no error at
# all. Better than 8 bits, better than anything. Write down what you think of that before you go on.
# *Your answer:*
#
# First, what each of them says:


# %%
def greedy(weights, ids, count=12):
    """The text of the most probable next tokens, one at a time."""
    logits_of, out = model_of(floats(weights)), list(ids)
    for _ in range(count):
        out.append(int(logits_of(torch.tensor(out))[-1].argmax()))
    return text.decode(out[len(ids) :])


# %%
# Experiment: what each of them says
for format, weights in {"float32": stored, **shelf}.items():
    print(f"{format!s:22} {greedy(weights, ids)!r}")

# %% [markdown]
# ## 3.8 The grid it already sits on
#
# A loss of nothing has a reason. Chapter 02 showed where this checkpoint comes from: a file of
# 4-bit blocks of 32. Its float32 numbers were made from 16 values a group. Quantizing them to the
# same 16 values finds them again.
#
# **Predict.** How many different values has a group of 32 weights in this checkpoint? And is 8
# bits, groups of 32 an honest measurement? *Your answer:*

# %%
# include: share_on_grid, noise_ratio, honest_formats

# %%
check("3.8")

# %%
# Experiment: on the grid
group = matrix[0, :32]
print(f"32 weights, {len(group.unique())} different values")
span = (group - group.min()) / (group.max() - group.min()) * 15
print("in fifteenths:", *(f"{n:.3f}" for n in span[:8].tolist()), "...")
first_layer = [w for n, w in matrices.items() if ".layers.0." in n]
print("share of groups of layer 0 that lie on a grid of")
for bits, size in ((4, 32), (8, 32), (3, 32), (4, 16), (4, 64)):
    share = sum(share_on_grid(w, bits, size) for w in first_layer) / len(first_layer)
    print(f"  {bits} bits, groups of {size:2}: {share:7.2%}   drawn at random: ", end="")
    print(f"{share_on_grid(drawn, bits, size):.2%}")

# %% [markdown]
# And the other way round: how large is the error, beside what rounding ought to cost? A number that
# knows nothing of the grid is off by step / sqrt(12) in the root mean square.

# %%
# Experiment: honest formats
tried = [*FORMATS, Format(4, 64), Format(2, 64)]
middle = {n: w for n, w in matrices.items() if ".layers.15." in n}
fair = honest_formats(middle, tried)
for format in tried:
    ratio = sum(noise_ratio(w, format) for w in middle.values()) / len(middle)
    verdict = "honest" if format in fair else "flattered"
    print(f"{format!s:24} error / expected {ratio:5.2f}   {verdict:10}", end="")
    print(f" drawn at random: {noise_ratio(drawn, format):.2f}")

# %% [markdown]
# So what do 4 bits in groups of 32 really cost? Move the borders: let each group begin 16 columns
# later. The same bits, the same size of a group, but half of it comes from one old grid and half
# from the next.


# %%
def moved(weight, format, by=16):
    """A weight quantized with groups whose borders lie `by` columns later, and read back."""
    return quantize(weight.float().roll(-by, 1), format).dequantize().roll(by, 1)


def moved_weights(format):
    return {
        n: moved(w, format) if is_quantizable(n, tuple(w.shape)) else w for n, w in stored.items()
    }


# %%
# Experiment: other borders
print(f"{'borders moved by 16':24}{HEADING}")
for format in (Format(8, 32), Format(3, 32), Format(2, 32), Format(4, 32)):
    shifted = moved_weights(format)  # the last one is kept: 425 MB of floats
    print(f"{format!s:24}{costs(shifted)[1]}")
print(f"4 bits, groups of 32, now says {greedy(shifted, ids)!r}")

# %%
# Experiment: the plot of error against bits
fig, ax = plt.subplots(num="error_bits", figsize=(7, 3.4), layout="constrained")
widths, sample = (2, 3, 4, 8), matrices["model.layers.15.mlp.up_proj.weight"].float()
series = {
    "drawn at random": (drawn, lambda w, f: quantize(w, f).dequantize(), BLUE, "o-"),
    "this checkpoint, borders moved": (sample, moved, GREEN, "s--"),
    "this checkpoint": (sample, lambda w, f: quantize(w, f).dequantize(), ORANGE, "D:"),
}
for label, (weight, way, colour, style) in series.items():
    off = [relative_error(weight, way(weight, Format(bits, 32))) for bits in widths]
    ax.semilogy(widths, [max(n, 1e-5) for n in off], style, color=colour, label=label)
    shown = (f"{bits} bits {n:.5f}" for bits, n in zip(widths, off, strict=True))
    print(f"{label:31}", *shown, sep="  ")
ax.set(xlabel="bits (groups of 32)", ylabel="relative error of the weights")
ax.set_xticks(widths)
ax.text(4.2, 0.9e-5, "0, drawn at the floor: the grid it came from", fontsize=8, va="top")
ax.set_ylim(bottom=3e-6)
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# Two curves agree and go down by half for each bit. The third has a hole in it, and the hole is not
# a property of 4 bits.
#
# Even the moved borders do not tell what the *first* quantization cost, from the official weights
# to this file. For that you need them. `python -m course model --source hub` fetches them, in
# bfloat16, where there is a network; this cell then runs on them.

# %%
# Experiment: the official weights
official = MODELS / f"{MODEL.name}-hub"
if official.is_dir():
    theirs = stored_tensors(official, read_config(official))
    layer_15 = {n: w for n, w in theirs.items() if ".layers.15." in n}
    print("honest there:", *(f"{format};" for format in honest_formats(layer_15, tried)))
    of_theirs = {"float32": model_of({n: w.float() for n, w in theirs.items()})(part)}
    for format in (Format(8), Format(4, 32), Format(3, 32)):
        of_theirs[format] = model_of(floats(quantize_weights(theirs, format)))(part)
    for format, found in of_theirs.items():
        surprise = perplexity(lambda ids, found=found: found, part, 256, 255)
        same = agreement(of_theirs["float32"], found)
        print(f"{format!s:24} perplexity {surprise:.2f}, agreement {same:.1%}")
else:
    print("not here: python -m course model --source hub")

# %% [markdown]
# ## Chat, and sums
#
# The field says: 4 bits keep the quality of chat; code and maths want 8. A model of 135 million
# weights can hardly do sums, so this is as far as it goes: the surprise at prose and at a part of
# the text with sums and code; and 36 sums of two numbers below ten, with one example before each.
#
# **Predict.** Which suffers first when bits are taken away? *Your answer:*

# %%
numbers_begin = story.index("Numbers for a small shop")
prose = torch.tensor(text.encode(story[:numbers_begin]))[-256:]
sums = torch.tensor(text.encode(story[numbers_begin:]))[:256]
pairs = [(a, b) for a in range(1, 9) for b in range(1, 9) if a + b < 10]
asked = torch.tensor([text.encode(f"2 + 3 = 5\n{a} + {b} = ") for a, b in pairs])
answers = torch.tensor([text.encode(str(a + b))[0] for a, b in pairs])


def judged(weights):
    """Logits on prose and on sums, their perplexities, and how many of the answers are right."""
    logits_of, model = model_of(weights), Llama(config, weights, linear)
    said = model.forward(asked, torch.arange(asked.shape[1]).expand_as(asked)).argmax(-1)
    found = [logits_of(part) for part in (prose, sums)]
    surprise = [
        perplexity(lambda _, f=f: f, prose_or_sums, 256, 255)
        for f, prose_or_sums in zip(found, (prose, sums), strict=True)
    ]
    return found, surprise, int((said == answers).sum())


# %%
# Experiment: chat, and sums
candidates = {
    "float32": lambda: stored,
    "int8 rows": lambda: floats(shelf[Format(8)]),
    "4 bits, 32, moved": lambda: shifted,
    "4 bits, 128": lambda: floats(shelf[Format(4, 128)]),
    "3 bits, 32": lambda: floats(shelf[Format(3, 32)]),
}
print(f"{'':20}{'perplexity':>18}{'agreement':>20}{'sums right':>13}")
print(f"{'':20}{'prose':>9}{'sums':>9}{'prose':>11}{'sums':>9}")
reference, verdicts = None, {}
for label, make in candidates.items():
    found, (p, s), right = judged(make())
    reference, verdicts[label] = reference or found, (p, s, right)
    a, b = (agreement(*both) for both in zip(reference, found, strict=True))
    print(f"{label:20}{p:9.2f}{s:9.2f}{a:11.1%}{b:9.1%}{right:8} of {len(pairs)}")

# %% [markdown]
# ## What goes wrong
#
# Three measurements that mislead, or weights that should have been left alone.
#
# **Predict.** int8 rows against float32 on the first 16 tokens, 64, 256: is the ratio of the two
# perplexities steady? *Your answer:*


# %%
# Experiment: too short a text
def surprise_after(key, n):
    """The perplexity of the first n tokens."""
    return perplexity(lambda ids: logits[key][:n], part[:n], n, n - 1)


print("tokens   int8 rows / float32   3 bits, 32 / float32")
for n in (8, 16, 32, 64, 128, 256):
    base, rows, three = (surprise_after(k, n) for k in ("float32", Format(8), Format(3, 32)))
    print(f"{n:6} {rows / base:15.4f} {three / base:22.4f}")

# %%
# Experiment: the embedding too
table = stored["model.embed_tokens.weight"].float()
print(f"{'embedding and head':22}{'MB':>7}{HEADING[9:]}")  # the layers' weights are as they were
for format in (Format(8), Format(4, 32), Format(3, 32), Format(2, 32)):
    small = quantize(table, format)
    line = costs({**stored, "model.embed_tokens.weight": small.dequantize()})[1]
    print(f"{format!s:22}{small.nbytes / 1e6:7.1f}{line[9:]}")

# %% [markdown]
# **Predict.** Some engines quantize the *activations* too, with one scale for everything in the
# batch. Somebody else's token is in your batch. Does your result depend on it? *Your answer:*


# %%
def int8_of(h, one_scale):
    """Activations [N, in] rounded to int8 and back, with one scale for all or one a row."""
    scale = (h.abs().max() if one_scale else h.abs().amax(1, keepdim=True)) / 127
    return (h / scale).round() * scale


# %%
# Experiment: a neighbour in the batch
entering = []


def spy(h, weight):
    if tuple(weight.shape) == (576, 1536):  # down_proj: where the largest activations go in
        entering.append(h.reshape(-1, h.shape[-1]))
    return linear(h, weight)


Llama(config, stored, spy).forward(torch.tensor([ids]), torch.arange(len(ids))[None])
index = max(range(30), key=lambda i: float(entering[i].abs().max()))
h, down = entering[index], stored[f"model.layers.{index}.mlp.down_proj.weight"]
print(f"into down_proj of layer {index}, the largest of each token:", end=" ")
print(*(f"{n:,.1f}" for n in h.abs().amax(1).tolist()))
last = h[-1:]
exact = linear(last, down)
for label, batch in (("alone", last), ("with the other four", h)):
    for one_scale in (True, False):
        off = relative_error(exact, linear(int8_of(batch, one_scale)[-1:], down))
        print(f"{label:20} {'one scale for all' if one_scale else 'a scale a token':18} {off:.4f}")

# %% [markdown]
# With one scale for the batch, the answer of a request depends on who else is there. Here
# everything that is not the giant becomes zero. Our engine leaves activations alone.
#
# ## Claimed beside measured
#
# **Predict.** 13 billion weights at 4 bits: 26 GB become 7 GB, says the field. 4 bits are a quarter
# of 16, so why not 6.5? *Your answer:*

# %%
# Experiment: claimed beside measured
layers_13b = 40 * (4 * 5120**2 + 3 * 5120 * 13824)  # the matrices of a Llama of 13B
rest_13b = 2 * 32000 * 5120  # embedding and head, in 16 bits
full = 2 * (layers_13b + rest_13b) / 1e9
print("claimed: 13B at 4 bits: 26 GB becomes 7 GB")
for size in (32, 64, 128):
    small = (layers_13b * (4 + 32 / size) / 8 + 2 * rest_13b) / 1e9
    print(f"   here: {full:.1f} GB become {small:.1f} GB in groups of {size}")
ours = {f: sum(w.nbytes for w in shelf[f].values()) / 1e6 for f in (Format(4, 32), Format(4, 128))}
for format, mb in ours.items():
    print(f"         this model, float32: {everything / 1e6:.0f} MB become {mb:.0f} MB in {format}")
print("claimed: naive dynamic quantization needs the whole full-precision model in RAM")
print(f"   here: one by one took {highest:.0f} MB for a result of {made_mb:.0f} MB")
print("claimed: 4 bits keep chat quality; code and maths want 8")
for label in ("int8 rows", "4 bits, 32, moved", "4 bits, 128"):
    p, s, right = (new / old for new, old in zip(verdicts[label], verdicts["float32"], strict=True))
    print(
        f"   here: {label}: perplexity of prose x {p:.2f}, of sums x {s:.2f}; right sums x {right:.2f}"
    )

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You have weights in a file a third as large, and a `linear` that takes them. Chapter 04 is the
# verb: token ids in, logits out. It takes your `linear` as an argument.
