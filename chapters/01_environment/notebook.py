# %% [markdown]
# # 01 · The environment
#
# Before a byte of a model is read, arithmetic says whether it fits and how fast it can be. You
# write that arithmetic, and the measurements that check it. At the end you predict how fast the
# bundled model decodes on this machine, measure it, and explain the difference.
#
# **How a notebook works**
#
# 1. Run the cells from the top, in order, with Shift+Enter. An answer to a prediction goes into the
#    text: double-click it.
# 2. A cell that begins with `#| exercise` is yours: replace the `raise` line by your code, run it.
# 3. `check("1.1")` judges what you last ran, in a second or two, and says what differs.
# 4. Stuck? `hint("1.1")` gets closer each time, three times. `solution("1.1")` shows one answer.
# 5. Save with Ctrl+S. The file is yours: nothing ever overwrites it. `progress()` shows the points.
#
# The reading is in `chapters/01_environment/README.md`; its sections are named like the parts below.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# ## The running example
#
# One prompt goes through the whole course: "The capital of France is". Here is what will answer
# it: a folder of files. We look at names, sizes and `config.json`, and at nothing else yet.

# %%
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import psutil
import torch

from course.paths import MODEL

GIB = 2**30
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes
config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
checkpoint = MODEL / "model.safetensors"

# %%
# Experiment: the running example
for path in sorted(MODEL.iterdir()):
    print(f"{path.stat().st_size:13,}  {path.name}")
for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"):
    print(f"{name} = {config[name]:,}")
for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "tie_word_embeddings"):
    print(f"{name} = {config[name]}")

# %% [markdown]
# ## 1.1 What the driver says
#
# `nvidia-smi` prints a table for people. An installer has to read it: which driver, how much
# memory, and which CUDA version the driver carries *at most*. The last number is a ceiling and says
# nothing about what is installed.
#
# **Predict.** The driver says 12.5. There are PyTorch builds for CUDA 11.8, 12.1, 12.4, 12.6 and
# 13.0. Which one do you install? *Your answer:*

# %%
# include: MIB, NO_DEVICES

# %%
# include: DRIVER, CUDA, DEVICE, MEMORY, VERSION

# %%
# include: Gpu

# %%
# include: Driver

# %%
# include: parse_nvidia_smi, choose_cuda

# %%
check("1.1")

# %%
printed = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.85.12    Driver Version: 525.85.12    CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  Tesla T4            Off  | 00000000:00:04.0 Off |                    0 |
| N/A   44C    P8     9W /  70W |    105MiB / 15360MiB |      0%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
"""

# %%
# Experiment: reading the table
driver = parse_nvidia_smi(printed)
print(driver)
print("install the build for CUDA", choose_cuda(driver.cuda, ["11.8", "12.1", "12.4", "13.0"]))
print("12.10 or 12.4 under 12.12:", choose_cuda((12, 12), ["12.10", "12.4", "12.9"]))
print(parse_nvidia_smi("name, memory.total [MiB], memory.used [MiB]\nTesla T4, 15360 MiB, 0 MiB"))
for text in ("", "bash: nvidia-smi: command not found", "No devices were found"):
    try:
        print(parse_nvidia_smi(text))
    except ValueError as refusal:
        print(refusal)
try:
    choose_cuda((11, 4), ["11.8", "12.4"])
except ValueError as refusal:
    print(refusal)

# %%
# Experiment: this machine's driver
if shutil.which("nvidia-smi"):
    driver = parse_nvidia_smi(subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout)
    print(driver)
else:
    driver = None
    print("no nvidia-smi here: the course runs on the CPU, and that is enough")

# %% [markdown]
# ## 1.2 How to time
#
# Everything below rests on timings. A single run is an anecdote: the first one pays for what
# happens once, and any of them can be interrupted. So: warm up, run several times, take the median.
# The clock is an argument, so that a test can bring its own.
#
# **Predict.** Fifty times the same 64 MiB are filled with ones. The first fill comes straight after
# the memory was asked for. Is it (a) as fast as the others, (b) up to twice as slow, (c) slower
# still? *Your answer:*

# %%
# include: Clock

# %%
# include: Timing, time_call

# %%
check("1.2")

# %%
# Experiment: a clock of our own
ticks = iter([0, 100, 200, 312, 400, 590, 600, 704, 800, 908])
by_hand = time_call(lambda: None, clock=lambda: next(ticks))
print(by_hand.runs, "median", by_hand.median, f"spread {by_hand.spread:.2f}")
print("mean", sum(by_hand.runs) / 5)

# %%
# Experiment: fifty runs
block = torch.empty(2**24)  # 64 MiB that nobody has touched
fifty = time_call(lambda: block.fill_(1.0), warmup=0, repeats=50)
later = [1000 * seconds for seconds in fifty.runs[1:]]
print(f"first {1000 * fifty.runs[0]:.2f} ms; the other 49: median {Timing(later).median:.2f},")
print(f"fastest {min(later):.2f}, slowest {max(later):.2f}")
fives = [Timing(later[n : n + 5]).median for n in range(0, 45, 5)]
print(f"single runs lie within {(max(later) - min(later)) / min(later):.0%} of the fastest,")
print(f"medians of five within {(max(fives) - min(fives)) / min(fives):.0%} of theirs")
fig, ax = plt.subplots(num="fifty_runs", figsize=(7, 3), layout="constrained")
ax.hist(
    later,
    bins=40,
    range=(0, max(1000 * fifty.runs[0], max(later))),
    color=BLUE,
    label="runs 2 to 50",
)
ax.axvline(1000 * fifty.runs[0], color=ORANGE, lw=2.5, ls="--", label="run 1")
ax.axvline(1000 * fifty.median, color=GREEN, lw=2.5, label="median of all 50")
ax.set(xlabel="one run (ms)", ylabel="runs", xlim=0)
ax.legend()
plt.show()

# %% [markdown]
# On the first touch the system has to find and clear a page for every few kilobytes. The mean would
# carry that in it; the median does not notice.
#
# ## 1.3 Bandwidth
#
# Bandwidth is bytes over seconds. The two that matter here: from memory to the processor, for every
# token; and from disk to memory, once at the start.
#
# **Predict.** You add up a block of numbers again and again. From 64 KiB to 512 MiB, does the speed
# (a) stay, (b) rise, (c) fall in steps? *Your answer:*

# %%
# include: bandwidth, read_through

# %%
check("1.3")

# %%
# Experiment: bandwidth against block size
sizes, speeds = [2**n for n in range(12, 30)], []
for size in sizes:
    often = max(1, 2**28 // size)  # the same block so often that there is something to time
    block = torch.ones(size // 4).expand(often, size // 4)
    speeds.append(bandwidth(block.sum, often * size))
names = [f"{n // 1024} KiB" if n < 2**20 else f"{n // 2**20} MiB" for n in sizes]
for name, speed in list(zip(names, speeds, strict=True))[::3]:
    print(f"{name:>8}: {speed / 1e9:6.1f} GB/s")
fig, ax = plt.subplots(num="block_size", figsize=(7, 3.2), layout="constrained")
ax.plot(sizes, [speed / 1e9 for speed in speeds], "o-", color=BLUE)
ax.axvline(checkpoint.stat().st_size, color=ORANGE, ls="--", label="the bundled model")
ax.set(xlabel="size of the block that is read again and again", ylabel="GB/s", ylim=0)
ax.set_xscale("log", base=2)
ax.set_xticks(sizes[::2], names[::2], rotation=45)
ax.legend()
plt.show()

# %% [markdown]
# Small blocks stay in a cache beside the core. A model of 538 MB does not: while it is read to its
# end, its beginning is thrown out again. Only the right end of the curve counts for decoding.
#
# **Predict.** And memory that was asked for, but never written? *Your answer:*

# %%
# Experiment: two ways to fool yourself
stretch = torch.ones(2**27)  # 537 MB, as much as the model
memory = bandwidth(stretch.sum, stretch.nbytes)
untouched = torch.empty(2**27)
print(f"written first: {memory / 1e9:6.1f} GB/s")
print(f"never written: {bandwidth(untouched.sum, untouched.nbytes) / 1e9:6.1f} GB/s")
once = bandwidth(stretch[: 2**10].sum, 2**12)
print(f"4 KiB, one call: {once / 1e9:4.1f} GB/s: the call, and hardly a byte")
copy = bandwidth(lambda: untouched.copy_(stretch), 2 * stretch.nbytes)
print(f"a copy counts twice, it reads and writes: {copy / 1e9:.1f} GB/s")

# %% [markdown]
# Memory that nobody has written has no place of its own yet: on many systems all of its pages are
# one and the same page of zeros, and that one sits in the cache. A benchmark that forgets to fill
# its array measures the cache.
#
# Now the disk. The system keeps what it has read in spare memory: the page cache.


# %%
def forget(path):
    """Ask the system to drop a file from its page cache, where it can be asked."""
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# %%
# Experiment: the file read cold and warm
nbytes = checkpoint.stat().st_size
forget(checkpoint)
cold = bandwidth(lambda: read_through(checkpoint), nbytes, warmup=0, repeats=1)
warm = bandwidth(lambda: read_through(checkpoint), nbytes)
print(f"cold: {cold / 1e9:5.2f} GB/s, {nbytes / cold:.2f} s for {nbytes / 1e6:.0f} MB")
print(f"warm: {warm / 1e9:5.2f} GB/s, {nbytes / warm:.2f} s")
print(f"a file of 26 GB, cold: {26e9 / cold:.0f} s")

# %% [markdown]
# Here a warm-up is a mistake! It fills the cache, and what is timed after it is memory. Know what a
# run must find before you decide whether to warm up. (Where the system cannot be asked to forget,
# the first line is warm as well, unless the machine has just started.)
#
# ## 1.4 Bytes of the weights
#
# `config.json` has 556 bytes, and they are enough to know the size of the model to the byte.
#
# **Predict.** 4 bits are an eighth of 32. Is the bundled model at 4 bits an eighth as large, or
# more? *Your answer:*

# %%
# include: Sizes, WIDTHS, SCALE_BYTES

# %%
# include: matrices

# %%
# include: head_dim, kv_width, weight_bytes

# %%
check("1.4")

# %%
# Experiment: a tiny model by hand
tiny = {"vocab_size": 10, "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1}
tiny |= {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
print("its matrices [out, in]:", *map(list, matrices(tiny)))
print("float32:", weight_bytes(tiny), "bytes; 4 bits in groups of 4:", weight_bytes(tiny, 4, 4))

# %%
# Experiment: the bundled model by bits
whole = weight_bytes(config)
print(f"{whole // 4:,} parameters; {whole:,} bytes in float32; the file has {nbytes:,}")
kept = config["vocab_size"] * config["hidden_size"]
for bits, group in ((32, None), (16, None), (8, None), (8, 32), (4, 128), (4, 32), (2, 32)):
    size = weight_bytes(config, bits, group)
    name = f"{bits} bits" + (f", groups of {group}" if group else "")
    print(f"{name:22}{size / 1e6:7.1f} MB {8 * size / (whole / 4):6.2f} bits a parameter")
print(f"of which the embedding, kept at 16 bits: {2 * kept / 1e6:.1f} MB")

# %% [markdown]
# Two things keep 4 bits from being 4 bits: each group of 32 carries a scale and a minimum (another
# 1 bit a number), and the embedding stays. In a small model with a large vocabulary that is a lot.
# How about a large one?

# %%
# Experiment: Llama 2 by bits
heads = {"num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000}
llama_7b = heads | {"hidden_size": 4096, "intermediate_size": 11008}
heads = {"num_attention_heads": 40, "num_hidden_layers": 40, "vocab_size": 32000}
llama_13b = heads | {"hidden_size": 5120, "intermediate_size": 13824}
print(f"{'':22}{'7B':>10}{'13B':>10}")
print(
    f"{'parameters':22}{weight_bytes(llama_7b) / 4e9:8.2f} B{weight_bytes(llama_13b) / 4e9:8.2f} B"
)
for bits, group in ((16, None), (8, None), (4, None), (4, 128), (4, 32), (2, 32)):
    name = f"{bits} bits" + (f", groups of {group}" if group else "")
    small, large = (weight_bytes(c, bits, group) / 1e9 for c in (llama_7b, llama_13b))
    print(f"{name:22}{small:7.2f} GB{large:7.2f} GB")
every = weight_bytes(llama_13b) / 4
print(f"13B, everything at 4 + 1 bits: {every * 5 / 8e9:.2f} GB; published Q4_1 file: 8.14 GB")
print(f"13B, everything at 4.5 bits:   {every * 4.5 / 8e9:.2f} GB; published Q4_0 file: 7.32 GB")

# %% [markdown]
# Claimed: 26 GB become 7 GB. Large groups, or a scale without a minimum, come close; our format with
# groups of 32 and the embedding in float16 takes 8.6 GB. "4 bits" is not a size.
#
# ## 1.5 Bytes of the KV cache
#
# Each token leaves a key and a value in every layer, and they stay as long as the request runs.
#
# **Predict.** The bundled model has 9 query heads and 3 key/value heads. What would 9 of each cost?
# And when is the cache of Llama 2 13B as large as its weights? *Your answer:*

# %%
# include: kv_cache_bytes

# %%
check("1.5")

# %%
# Experiment: bytes of a token
print("by hand, 3 sequences of 10 tokens:", kv_cache_bytes(tiny, 10, batch=3), "bytes")
full_heads = config | {"num_key_value_heads": config["num_attention_heads"]}
five = kv_cache_bytes(config, 5, bits=32)
print(f"bundled, float32: {kv_cache_bytes(config, 1, bits=32):,} bytes a token")
print(f"  the prompt's 5 tokens: {five:,}; a context of 8,192:", end=" ")
print(f"{kv_cache_bytes(config, 8192, bits=32) / 1e6:.0f} MB")
print(f"  with 9 key/value heads: {kv_cache_bytes(full_heads, 1, bits=32):,} bytes a token")
print(f"13B, float16: {kv_cache_bytes(llama_13b, 1):,} bytes a token")
held = kv_cache_bytes(llama_13b, 2048)
print(f"claimed: 2 GB at 2,048 tokens; here: {held / 1e9:.2f} GB ({held / GIB:.2f} GiB)")
tokens = weight_bytes(llama_13b, 16) / kv_cache_bytes(llama_13b, 1)
print(f"as large as the weights after {tokens:,.0f} tokens: {tokens / 2048:.0f} requests of 2,048")

# %%
# Experiment: keys and values by length
lengths = [2**n for n in range(4, 17)]
lines = (
    ("13B, 40 of 40 heads", llama_13b, BLUE, "-"),
    ("13B with 8 of 40", llama_13b | {"num_key_value_heads": 8}, BLUE, ":"),
    ("bundled, as if 9 of 9", full_heads, ORANGE, "-"),
    ("bundled, 3 of 9", config, ORANGE, ":"),
)
fig, ax = plt.subplots(num="kv_bytes", figsize=(7, 3.6), layout="constrained")
for name, sizes, colour, style in lines:
    held = [kv_cache_bytes(sizes, n) / 1e6 for n in lengths]
    ax.loglog(lengths, held, style, color=colour, lw=2.2, label=name)
for sizes, colour, name in ((llama_13b, BLUE, "13B"), (config, ORANGE, "bundled")):
    ax.axhline(weight_bytes(sizes, 16) / 1e6, color=colour, lw=1, ls="--")
    ax.text(17, 1.15 * weight_bytes(sizes, 16) / 1e6, f"weights of {name}", color=colour)
ax.set(xlabel="tokens held", ylabel="MB in float16", ylim=(0.2, 90000))
ax.set_xticks(lengths[::2], [f"{n:,}" for n in lengths[::2]])
ax.minorticks_off()
ax.legend(fontsize=8, loc="lower right")
plt.show()

# %% [markdown]
# ## 1.6 The roofline
#
# One decode step reads every weight once and does two operations for each, a multiply and an add,
# for each sequence. Reading and computing overlap; the slower one sets the time. That is the whole
# model, and it is called the roofline.
#
# **Predict.** One sequence, 538 MB, and the bandwidth you measured: how many tokens a second? And
# with eight sequences at once, how many in all? *Your answer:*

# %%
# include: Prediction

# %%
# include: predict_decode, compute_bound_from

# %%
check("1.6")

# %%
# Experiment: the roofline by hand
for batch in (1, 4, 8):  # 100 bytes, 25 weights; 50 bytes a second, 100 operations a second
    print(f"{batch} sequences:", predict_decode(100, 0, 25, 50, 100, batch))
print("arithmetic takes over at", compute_bound_from(100, 0, 25, 50, 100))
print("with a cache of 25 bytes each:", compute_bound_from(100, 25, 25, 50, 100))

# %%
# Experiment: two ceilings
square = torch.randn(1024, 1024)
flops = 2 * 1024**3 / time_call(lambda: square @ square, repeats=15).median
memory = bandwidth(stretch.sum, stretch.nbytes, repeats=15)
print(f"reads {memory / 1e9:.1f} GB/s, multiplies {flops / 1e9:.0f} GFLOP/s in float32,")
print(f"so {flops / memory:.1f} operations in the time of one byte; one float32 weight gives 0.5")

# %%
# Experiment: what the roofline predicts
parameters, context = whole / 4, 32
kv = kv_cache_bytes(config, context, bits=32)
print("sequences  tokens/s   bound")
for batch in (1, 2, 4, 8, 16, 32, 64):
    predicted = predict_decode(whole, kv, parameters, memory, flops, batch)
    print(f"{batch:9} {predicted.tokens_per_second:9.0f}   {predicted.bound}")
turn = compute_bound_from(whole, kv, parameters, memory, flops)
print(f"arithmetic takes over at {turn} sequences of {context} tokens")
long = kv_cache_bytes(config, 8192, bits=32)
print("with 8,192 tokens each:", compute_bound_from(whole, long, parameters, memory, flops))
print(f"at 4 + 1 bits, one sequence: {memory / weight_bytes(config, 4, 32):.0f} tokens/s at most")

# %% [markdown]
# One sequence uses a small part of the arithmetic there is. That is why an engine batches: up to
# the turn, more sequences cost the same reading.
#
# **Predict.** Two GPUs with 24 GB each, the same arithmetic, 600 and 936 GB/s. How much faster is
# the second at decoding? *Your answer:*

# %%
# Experiment: same memory size, more bandwidth
cards = (  # GB, GB/s as the makers publish them
    (24, "L4", 300),
    (24, "A10", 600),
    (24, "RTX 3090", 936),
    (24, "RTX 4090", 1008),
    (48, "A40", 696),
    (48, "L40S", 864),
)
half, before = weight_bytes(llama_7b, 16), {}
for size, name, speed in cards:
    predicted = predict_decode(half, 0, half / 2, speed * 1e9, 100e12).tokens_per_second
    gain = f"{predicted / before[size] - 1:+6.0%}" if size in before else ""
    print(
        f"{size} GB  {name:9}{speed:6} GB/s  7B in float16: at most {predicted:5.1f} tokens/s {gain}"
    )
    before[size] = predicted

# %% [markdown]
# The claim "same memory size, more bandwidth: 30 % faster" is one case. By this arithmetic the gain
# is that of the bandwidth, whatever it is. At the end of the notebook you change the bandwidth of
# *this* machine and see whether decoding follows.
#
# ## 1.7 The memory plan
#
# Two rules decide before anything is loaded. To load: RAM of at least twice the file. To run:
# weights and cache in at most 80 % of the memory they live in.
#
# **Predict.** Llama 2 13B in float16 on a GPU of 24 GB with 64 GB of RAM: which rule breaks? *Your
# answer:*

# %%
# include: GB, FILE_FACTOR, HEADROOM_PERCENT

# %%
# include: MemoryPlan

# %%
# include: plan_memory

# %%
check("1.7")

# %%
# Experiment: exactly at the limit
print(plan_memory(5 * GB, 5 * GB, 3 * GB, 10 * GB))
for reason in plan_memory(5 * GB, 5 * GB, 4 * GB, 9 * GB).reasons:
    print(reason)

# %%
# Experiment: what fits
ram = psutil.virtual_memory().available
full, four = weight_bytes(llama_13b, 16), weight_bytes(llama_13b, 4, 32)
chat = kv_cache_bytes(llama_13b, 2048, batch=4)
cases = {
    "bundled, here": (nbytes, whole, kv_cache_bytes(config, 8192, bits=32), ram),
    "13B, 24 GB device": (full, full, chat, 64 * GB, 24 * GB),
    "13B at 4 bits, same": (four, four, chat, 64 * GB, 24 * GB),
    "13B at 4 bits, 16 requests": (four, four, 4 * chat, 64 * GB, 24 * GB),
    "13B, a laptop of 16 GB": (full, full, chat, 16 * GB),
}
for name, numbers in cases.items():
    plan = plan_memory(*numbers)
    print(f"{name}: {'fits' if plan.fits else 'does not fit'}")
    for reason in plan.reasons:
        print(f"  {reason}")

# %% [markdown]
# ## 1.8 Is it the right file?
#
# A weight file is data from a stranger. Before anything in it is read: is it, bit for bit, what the
# source published, and does its licence allow what you do? A hash answers the first, a list the
# second.
#
# **Predict.** SHA-256 over 538 MB: (a) under a second, (b) some seconds, (c) minutes? And when a 6
# in `config.json` becomes a 7, which is one bit: how many of the 64 digits change? *Your answer:*

# %%
# include: Progress

# %%
# include: sha256_file, check_manifest, check_licence

# %%
check("1.8")

# %%
# Experiment: a checksum by hand
with tempfile.TemporaryDirectory() as folder:
    for text in ("abc", ""):
        (Path(folder) / "three letters").write_text(text, encoding="utf-8")
        print(f"{text!r:5}", sha256_file(Path(folder) / "three letters"))

# %%
# Experiment: what a checksum costs
took = time_call(lambda: sha256_file(checkpoint), repeats=3).median
print(f"{nbytes / 1e6:.0f} MB in {took:.2f} s, {nbytes / took / 1e9:.2f} GB/s")
print("claimed: a checksum costs minutes at most")
for name, size in (("13B in float16", full), ("70B in float16", 138e9)):
    print(f"   here: {name}, {size / 1e9:.0f} GB: {took * size / nbytes:.0f} s")

# %%
# Experiment: three faults in one report
manifest = json.loads((MODEL / "manifest.json").read_text(encoding="utf-8"))
print("the bundled model:", check_manifest(MODEL, manifest["files"]) or "as listed")
with tempfile.TemporaryDirectory() as folder:
    copy = Path(folder)
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, copy)
    first = sha256_file(copy / "config.json")
    text = (copy / "config.json").read_text(encoding="utf-8")
    (copy / "config.json").write_text(text.replace("576", "577"), encoding="utf-8")
    (copy / "surprise.py").write_text("print('hello')", encoding="utf-8")
    for line in check_manifest(copy, manifest["files"]):
        print(line)
    second = sha256_file(copy / "config.json")
    same = sum(a == b for a, b in zip(first, second, strict=True))
    print(f"one digit of the text changed: {64 - same} of 64 digits of the hash differ")

# %% [markdown]
# A digit of the new hash has nothing to do with the old one, so it is the same by chance, one time
# in sixteen: about 60 of 64 differ.

# %%
# Experiment: licences in many spellings
allowed = ("Apache-2.0", "MIT", "BSD-3-Clause")
print(f"the manifest says {manifest['licence']!r}: {check_licence(manifest['licence'], allowed)}")
for licence in ("Apache License, Version 2.0", "MIT License", "llama2", "Apache-2.0 OR GPL-3.0"):
    try:
        print(f"{licence!r}: {check_licence(licence, allowed)}")
    except ValueError as refusal:
        print(refusal)

# %% [markdown]
# ## Predict, then measure
#
# Now the test of all of it. You have two numbers, the bytes and the bandwidth. No model has been
# loaded yet. The next cell writes the prediction down before it can be adjusted.

# %%
# Experiment: the prediction
predicted = predict_decode(whole, kv, parameters, memory, flops)
print(f"{(whole + kv) / 1e6:.0f} MB a token at {memory / 1e9:.1f} GB/s")
print(f"predicted: {predicted.tokens_per_second:.1f} tokens/s, {predicted.bound} is the bound")

# %%
from course.assemble import assemble

engine = assemble(MODEL)
ids = engine.text.encode("The capital of France is")
ids = (ids * context)[:context]


def decode_step(batch):
    """A call that decodes one token for each of `batch` sequences that hold `context` tokens."""
    cache, row = engine.new_cache(batch, context + 1), torch.arange(batch)
    for each in range(batch):
        cache.reserve(each, context + 1)
    prompts, positions = torch.tensor([ids] * batch), torch.arange(context).repeat(batch, 1)
    engine.model.forward(prompts, positions, cache, row)
    token, at = torch.full((batch, 1), ids[0]), torch.full((batch, 1), context)
    return lambda: engine.model.forward(token, at, cache, row)


# %%
# Experiment: the measurement
one_step = decode_step(1)
step = time_call(one_step, repeats=15)
measured = 1 / step.median
print(f"predicted {predicted.tokens_per_second:5.1f} tokens/s")
print(f"measured  {measured:5.1f} tokens/s, {1000 * step.median:.1f} ms a token")
print(f"the prediction is {predicted.tokens_per_second / measured:.1f} times too high")

# %% [markdown]
# The roofline is a ceiling, so too high is the right side to be wrong on. But why by so much? Two
# suspects: the products do not read as fast as a plain sum, and everything between the products
# takes time without reading much. Try each alone.


# %%
class Counter(torch.overrides.TorchFunctionMode):
    """Counts the calls into torch while it is active."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


tables = [w for w in engine.model.weights.values() if w.ndim == 2]


def products(rows):
    """A call of all the products of a decode step, real weights, and nothing between them."""
    x = {width: torch.randn(rows, width) for width in {w.shape[1] for w in tables}}
    return lambda: [torch.nn.functional.linear(x[w.shape[1]], w) for w in tables]


# %%
# Experiment: where the prediction went wrong
floor, read = (whole + kv) / memory, sum(w.nbytes for w in tables)
alone = time_call(products(1), repeats=15).median
with Counter() as counter:
    one_step()
print(f"reading at the speed of a sum    {1000 * floor:6.1f} ms")
print(f"products are slower readers    + {1000 * (alone - floor):6.1f} ms")
print(f"everything else                + {1000 * (step.median - alone):6.1f} ms")
print(f"the step                       = {1000 * step.median:6.1f} ms")
for name, call in (
    ("added up, one after another", lambda: [w.sum() for w in tables]),
    ("multiplied with one row", products(1)),
    ("multiplied with eight rows", products(8)),
):
    each = time_call(call).median
    print(f"the matrices, {name:28}{1000 * each:6.1f} ms {read / each / 1e9:5.1f} GB/s")
tiny_row = torch.randn(1, 1, 576)
tiny_call = time_call(lambda: [tiny_row + tiny_row for _ in range(1000)]).median / 1000
print(
    f"{counter.calls:,} calls into torch; one that adds 576 numbers takes {1e6 * tiny_call:.1f} us,"
)
print(f"and 1 us of reading is {memory / 1e9:.0f} kB")

# %%
# Experiment: predicted again
again = 1 / ((whole + kv) * alone / read + counter.calls * tiny_call)
print(f"with the speed of a product, and so many small calls: {again:.1f} tokens/s")
print(f"measured {measured:.1f}: the prediction is {again / measured - 1:+.0%} off")

# %% [markdown]
# So the arithmetic was right and its inputs were not. A product with a single row reads far slower
# than a sum over the same matrices, while eight rows take far less than eight times as long. (If the
# cell above printed otherwise, the machine was busy: run it again.) And thousands of
# small calls cost what reading many megabytes would. Chapter 09 will remove both. A prediction that fails
# *by parts you can name* is the most useful kind.
#
# **Predict.** With eight sequences a step reads the same weights. How much longer does it take?
# *Your answer:*

# %%
# Experiment: predicted and measured by batch
points = []
print("sequences  predicted   measured tokens/s   a step")
for batch in (1, 8, 64):
    ceiling = predict_decode(whole, kv, parameters, memory, flops, batch).tokens_per_second
    seconds = time_call(decode_step(batch), repeats=3).median
    points.append((batch, 2 * parameters * batch / (whole + batch * kv), seconds))
    print(f"{batch:9} {ceiling:10.0f} {batch / seconds:10.0f} {1000 * seconds:17.0f} ms")


# %%
# Experiment: the roofline of this machine
def roof(intensity):
    """The most GFLOP/s at so many operations for each byte."""
    return min(memory * intensity, flops) / 1e9


fig, ax = plt.subplots(num="roofline", figsize=(7, 4), layout="constrained")
ridge = flops / memory
ax.loglog([0.1, ridge, 300], [roof(0.1), roof(ridge), roof(300)], color="black", label="the roof")
for (batch, intensity, seconds), colour in zip(points, (BLUE, ORANGE, GREEN), strict=True):
    done = 2 * parameters * batch / seconds / 1e9
    name = "predicted" if batch == 1 else None
    ax.plot(intensity, roof(intensity), "v", color=colour, fillstyle="none", ms=9, label=name)
    ax.plot(intensity, done, "o", color=colour, ms=9, label=f"batch of {batch}, measured")
    ax.plot([intensity] * 2, [done, roof(intensity)], ":", color=colour)
ax.axvline(ridge, color="grey", lw=1, ls="--")
ax.text(1.1 * ridge, 1.4 * roof(300), "arithmetic sets the speed", color="grey")
ax.text(0.9 * ridge, 1.4 * roof(300), "memory sets the speed", color="grey", ha="right")
ax.set(xlabel="operations for each byte read", ylabel="GFLOP/s", ylim=(None, 2.2 * roof(300)))
ax.legend(fontsize=8, loc="lower right")
plt.show()

# %% [markdown]
# Last: is it the memory? One way to find out is to take some of it away. A second program is
# started. It either reads memory as fast as it can, or it only multiplies, with numbers that fit in
# its cache. This engine gets one core, so that both have a core of their own.
#
# **Predict.** Which neighbour slows decoding down, and by how much? *Your answer:*

# %%
reads = "x = torch.ones(2**26); work = x.sum"
multiplies = "x = torch.randn(128, 128); work = lambda: x @ x"


def beside(neighbour):
    """Bandwidth and seconds of a decode step on one core, while `neighbour` runs on another."""
    source = f"import torch; torch.set_num_threads(1); {neighbour}; work(); print(flush=True)"
    command = [sys.executable, "-c", f"{source}\nwhile True: work()"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE) if neighbour else None
    try:
        if other:
            other.stdout.readline()  # it is up
        return bandwidth(stretch.sum, stretch.nbytes), time_call(one_step).median
    finally:
        if other:
            other.kill()
            other.communicate()


# %%
# Experiment: a neighbour who reads, a neighbour who multiplies
threads = torch.get_num_threads()
torch.set_num_threads(1)
trials = {"alone": "", "beside one who multiplies": multiplies, "beside one who reads": reads}
beside_whom = {name: beside(neighbour) for name, neighbour in trials.items()}
torch.set_num_threads(threads)
speed, seconds = beside_whom["alone"]
for name, (other, longer) in beside_whom.items():
    print(f"{name:26}{other / 1e9:6.1f} GB/s {other / speed:5.0%}", end="   ")
    print(f"{1 / longer:5.1f} tokens/s {seconds / longer:5.0%}")
if min(longer for _, longer in beside_whom.values()) < seconds:
    print("faster beside a neighbour than alone: too noisy to compare, run it again")

# %% [markdown]
# The same machine, the same memory size, the same arithmetic: only the bandwidth changed. Compare
# the two columns of percentages. Then the folklore of this chapter in one table.

# %%
# Experiment: claimed beside measured
other, longer = beside_whom["beside one who reads"]
_, busy = beside_whom["beside one who multiplies"]
print("claimed: bandwidth, not arithmetic, sets decode speed")
print(f"   here: arithmetic {2000 * parameters / flops:.1f} ms, reading {1000 * floor:.1f} ms,")
print(f"         the step {1000 * step.median:.1f} ms; beside a neighbour who multiplies")
print(f"         {seconds / busy - 1:+.0%}, beside one who reads {seconds / longer - 1:+.0%}")
print("claimed: same memory size, more bandwidth: 30 % faster")
print(f"   here: {speed / other - 1:+.0%} bandwidth, {longer / seconds - 1:+.0%} tokens/s")
row, small = weight_bytes(llama_13b, 4), weight_bytes(llama_13b, 4, 32)
print("claimed: 13B at 4 bits: 26 GB becomes 7 GB")
print(f"   here: {full / 1e9:.2f} GB becomes {row / 1e9:.2f} with one group a row,")
print(f"         {small / 1e9:.2f} with groups of 32")
print("claimed: 13B at 2,048 tokens: 2 GB of keys and values")
print(f"   here: {kv_cache_bytes(llama_13b, 2048) / 1e9:.2f} GB in float16")
print("claimed: a checksum costs minutes at most")
print(f"   here: {took:.2f} s for {nbytes / 1e6:.0f} MB, {took * full / nbytes:.0f} s for 26 GB")

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You know whether a model fits and how fast it can be, and your numbers are measured. Nothing has
# been read from the file so far but its hash. Chapter 02 opens it: a header, offsets, and tensors
# that are not copied.
