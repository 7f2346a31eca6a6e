# %% [markdown]
# # 02 · The loader
#
# A folder of files goes in. A config and named tensors come out. A good loader believes nothing
# that the files say before it has compared it with something else, and copies nothing that it need
# not. You write one.
#
# The reading is in `chapters/02_loader/README.md`; its sections are named like the parts below.
# Cells that begin with `#| exercise` are yours to fill in. Run the cells from the top, in order.
# Stuck? `hint("2.1")` gets closer each time; `solution("2.1")` shows one answer.

# %%
from course.notebook import check, hint, solution, progress

# %%
# include: imports

# %% [markdown]
# ## The running example
#
# One prompt goes through the whole course: `The capital of France is`. The model knows each of its
# five tokens by a row of 576 numbers. Today we follow one of them, ` France`, from a byte of a file
# to the numbers that chapter 04 computes with.

# %%
import os
import pickle
import struct
import subprocess
import tempfile
import textwrap
import weakref
from dataclasses import replace

import matplotlib.pyplot as plt
import psutil
from safetensors.torch import load_file, save_file

from course.paths import GGUF, MODEL, MODELS, ROOT
from course.text import Text

text, path = Text(MODEL), MODEL / "model.safetensors"
ids = text.encode("The capital of France is")
token = ids[3]
room = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # for small damaged files
scratch = Path(room.name)
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # safe for colour-blind eyes
print(f"{ids}: {text.decode([token])!r} is {token:,}; the file has {path.stat().st_size:,} bytes")

# %%
# Experiment: the beginning of the file
with path.open("rb") as file:
    first = file.read(8)
    length = int.from_bytes(first, "little")
    index = file.read(length).decode("utf-8")
print(f"8 bytes: {first.hex(' ')} = {length:,}")
print(f"{length:,} bytes: {index[:99]}")
print(f"          {index[99:198]}…")

# %% [markdown]
# That is the whole format: a length, an index in JSON, then numbers. The index says that the
# embedding is float32, 49,152 rows of 576, and starts at byte 0 of the numbers.
#
# **Predict.** At which byte of the file does row 4,649 begin? You have all you need: 8, the length,
# 576, and the size of a float32. *Your answer:*

# %%
# Experiment: one row by hand
at = 8 + length + 0 + token * 576 * 4
with path.open("rb") as file:
    file.seek(at)
    raw = file.read(16)
print(f"8 + {length:,} + 0 + {token:,} x 576 x 4 = byte {at:,}")
print("16 bytes:", raw.hex(" ", 4))
print("4 numbers:", *(f"{number:.6f}" for number in struct.unpack("<4f", raw)))

# %% [markdown]
# A seek and 16 bytes, and the word is there. Everything else in this chapter is about doing this
# for 272 tensors, at once, without copies, from files that may be damaged, made for another model,
# or made to hurt.
#
# ## 2.1 The header
#
# First the pieces that are given. JSON is believed only as far as it has been looked at: to Python,
# `True` is an integer, an endless nesting is a crash, and of two values under one name the last
# wins in silence.

# %%
# include: json_object, each_once, is_int

# %%
# include: MAX_HEADER, MAX_DIMENSIONS, DTYPES, Entry, Header

# %% [markdown]
# Here is the smallest file that shows everything: two tensors, `a` = (1, -2) in float32 and `b` =
# (0.5, -3) in bfloat16.
#
# **Predict.** The JSON gets spaces at its end until its length divides by 8. Why would a writer do
# that? *Your answer:*


# %%
def write_file(name, header, data, length=None):
    """A file made of a length, a header (bytes, or what becomes JSON) and data."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode("utf-8")
        header += b" " * (-len(header) % 8)
    length = len(header) if length is None else length
    (scratch / name).write_bytes(length.to_bytes(8, "little") + header + data)
    return scratch / name


def entry_of(dtype, shape, start, stop):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


two = {"a": entry_of("F32", [2], 0, 8), "b": entry_of("BF16", [1, 2], 8, 12)}
numbers = struct.pack("<2f", 1.0, -2.0) + struct.pack("<2H", 0x3F00, 0xC040)
tiny = write_file("two.safetensors", two, numbers)

# %%
# Experiment: a file of two tensors
whole = tiny.read_bytes()
for start in range(0, len(whole), 16):
    part = whole[start : start + 16]
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    print(f"{start:4}  {part.hex(' '):47}  {shown}")
print("the safetensors package reads:", {n: t.tolist() for n, t in load_file(tiny).items()})

# %% [markdown]
# The space before the data is there so that the numbers begin at a multiple of 8, which a processor
# reads best. The order of the bytes in a number is little-endian: 1.0 is `3f800000`, and stands in the file as
# `00 00 80 3f`.
#
# Now write it. Each number in the header is a claim. Hold it against something that you know
# without it.

# %%
# include: read_header

# %%
check("2.1")

# %%
# Experiment: the header, read
header = read_header(tiny)
for entry in header.entries:
    print(entry)
print("the data begin at byte", header.base)
header = read_header(path)
print(
    f"the model: {len(header.entries)} tensors, data from byte {header.base:,}, {header.metadata}"
)

# %% [markdown]
# **Predict.** A file claims that its header has $2^{60}$ bytes. What does `file.read(length)` do in
# Python: (a) read to the end of the file, (b) ask the system for $2^{60}$ bytes, (c) return nothing?
# *Your answer:*


# %%
def refusal(call, *arguments):
    """What a call says when it refuses; paths without their folder."""
    try:
        call(*arguments)
    except (ValueError, OSError) as problem:
        message = str(problem).replace(f"{scratch}{os.sep}", "")
        lines = [textwrap.fill(line, 84, subsequent_indent="    ") for line in message.split("\n")]
        return "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])
    return "accepted"


# %%
# Experiment: five lies
lies = [
    write_file("length.safetensors", two, numbers, length=2**60),
    write_file("cut.safetensors", two, numbers[:-2]),
    write_file("overlap.safetensors", two | {"b": entry_of("BF16", [1, 2], 4, 8)}, numbers),
    write_file("dtype.safetensors", two | {"b": entry_of("F4", [1, 2], 8, 12)}, numbers),
    write_file("list.safetensors", b"[1, 2] ", numbers),
]
for lie in lies:
    print(refusal(read_header, lie))
with lies[0].open("rb") as file:
    try:
        file.read(int.from_bytes(file.read(8), "little"))
    except MemoryError as problem:
        print(f"and without the check: {type(problem).__name__}")

# %% [markdown]
# With $2^{60}$ Python gives up at once. With 20 GB it would not: it would ask, the system would try,
# and something else on the machine might die of it. So the size of the file is asked first.
#
# ## 2.2 Views of the file
#
# The numbers are already in the form in which the processor wants them. So nothing has to be read,
# parsed or copied. The file is *mapped*: the system gives out addresses, and fills the memory behind
# them from the disk page by page, when somebody looks.
#
# **Predict.** You open the 538 MB file this way, 272 tensors. How much more memory does your process
# have afterwards: (a) 538 MB, (b) twice that, (c) less than 1 MB? *Your answer:*

# %%
# include: MAP_NORESERVE, map_file

# %%
# include: read_safetensors

# %%
check("2.2")

# %%
# Experiment: the row through the map
began = time.perf_counter()
tensors = read_safetensors(path)
took = time.perf_counter() - began
row = tensors["model.embed_tokens.weight"][token]
print(f"{len(tensors)} tensors in {1000 * took:.0f} ms")
shown = ", ".join(f"{number:.6f}" for number in row[:4].tolist())
print(f"{text.decode([token])!r}: {list(row.shape)} {row.dtype}, {shown}")
theirs = load_file(path)
print("equal to the safetensors package's:", all(tensors[n].equal(theirs[n]) for n in theirs))
row = row.clone()
del tensors, theirs


# %%
def resident():
    """Bytes of memory that this process has at the moment, mapped pages included."""
    return psutil.Process().memory_info().rss


# %%
# Experiment: what touching costs
before = resident()
tensors = read_safetensors(path)
touched, seen = [0], [resident() - before]
print(f"opened:   {seen[0] / 1e6:6.1f} MB more")
tensors["model.layers.20.mlp.up_proj.weight"][0, :4].sum()
print(f"16 bytes: {(resident() - before) / 1e6:6.1f} MB more")
for tensor in tensors.values():
    tensor.sum()
    touched.append(touched[-1] + tensor.nbytes)
    seen.append(resident() - before)
print(f"all:      {seen[-1] / 1e6:6.1f} MB more, for {touched[-1] / 1e6:.1f} MB of tensors")
del tensors, tensor
print(f"let go:   {(resident() - before) / 1e6:6.1f} MB more")

# %%
# Experiment: the plot of resident memory
fig, ax = plt.subplots(num="resident", figsize=(7, 3), layout="constrained")
ax.plot([n / 1e6 for n in touched], [n / 1e6 for n in seen], "o-", ms=3, color=BLUE)
whole = touched[-1] / 1e6
ax.axhline(whole, color=ORANGE, ls="--", label="a loader that reads the whole file first")
ax.set(xlabel="tensors looked at (MB)", ylabel="resident memory, growth (MB)", ylim=(-15, 600))
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# Memory follows the finger. These pages are also the cheapest memory there is: they are the same as
# in the file, so the system may drop them whenever it is short, and two processes that map the same
# file share them.
#
# **Predict.** One slice of a tensor is all you keep, you delete everything else, then the file too.
# Is the slice still good? *Your answer:*


# %%
def maps_of(call):
    """The result of a call, and weak references to the maps that it made."""
    original, made = map_file, []

    def spy(file):
        made.append(weakref.ref(data := original(file)))
        return data

    globals()["map_file"] = spy
    try:
        return call(), made
    finally:
        globals()["map_file"] = original


# %%
# Experiment: what keeps a map alive
copy = scratch / "copy.safetensors"
save_file({"row": row, "other": torch.zeros(1000)}, copy)
tensors, maps = maps_of(lambda: read_safetensors(copy))
tensors["row"][0] = 99.0
print(
    f"written to the tensor: {tensors['row'][0]:.2f}; in the file: {load_file(copy)['row'][0]:.6f}"
)
kept = tensors["row"][1:3]
del tensors
print("one slice kept, the map is open:", [made() is not None for made in maps])
try:
    copy.unlink()
except PermissionError:
    print("Windows deletes no file that is mapped")
print(f"the file is there: {copy.exists()}; the slice: {[round(n, 6) for n in kept.tolist()]}")
del kept
print("nothing kept, the map is open:", [made() is not None for made in maps])

# %% [markdown]
# The tensor holds the storage, the storage holds the map, the map holds the pages. Nobody has to
# close anything, and nobody may.
#
# A map has one weakness. The size is checked when the file is opened. If somebody *shortens* the
# file afterwards, there is nothing behind the addresses.

# %%
# Experiment: a file that shrinks under its map
save_file({"row": row}, copy)
child = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
os.truncate(sys.argv[1], 0)
print(data[100])
"""
done = subprocess.run([sys.executable, "-c", child, copy], capture_output=True, encoding="utf-8")
print(f"exit code {done.returncode}, standard error {done.stderr[-60:]!r}")
sparse = write_file("sparse.safetensors", two, b"")
with sparse.open("r+b") as file:
    file.truncate(len(tiny.read_bytes()))
print("right size, never filled:", {n: t.tolist() for n, t in read_safetensors(sparse).items()})

# %% [markdown]
# Exit code -7 is the signal SIGBUS (on macOS -10): the process is gone, without a Python error. So
# never write over a file that is in use: write another and rename it.
#
# The last line is the other weakness. Some downloaders make the file at its full size first and
# fill it later. Size and header are right, and the weights are zeros. Only a checksum sees that,
# which is why `python -m course model` compares one before anything is read.
#
# ### bfloat16 is half a float32
#
# **Predict.** Of the 32 bits of a float32, bfloat16 keeps the first 16. Which of the two keeps more
# digits: bfloat16, or float16? And which can hold 70,000? *Your answer:*


# %%
def bits(number):
    """The bits of one number: sign, exponent, fraction."""
    width = 8 * number.itemsize
    whole = number.view(torch.int32 if width == 32 else torch.int16).item() % 2**width
    exponent = 5 if number.dtype == torch.float16 else 8
    digits = f"{whole:0{width}b}"
    return f"{digits[0]} {digits[1 : 1 + exponent]} {digits[1 + exponent :]}"


# %%
# Experiment: bits
for value in (row[0], torch.tensor(70000.0)):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        number = value.to(dtype)
        print(f"{str(dtype)[6:]:9} {bits(number):35} {number.item():.6g}")
half = row.to(torch.bfloat16)
back = (half.view(torch.int16).int() << 16).view(torch.float32)  # sixteen zeros put behind
print("bits put back by hand, as torch converts:", back.equal(half.float()))
off = (back - row).abs() / row.abs().clamp(min=1e-30)  # some numbers of the row are 0
print(f"the row in bfloat16 is off by {off.max():.2%} at most")

# %% [markdown]
# ## 2.3 The config
#
# `config.json` says what the numbers are for. It was written by some program in some year, and each
# has its own spelling. A key that is absent, a key that is null and a key with the usual value often
# mean the same, and sometimes do not.

# %%
# include: MAX_LAYERS, MAX_COUNT, ARCHITECTURE, PLAIN, Config

# %%
# include: json_file, generation_config

# %%
# include: count, positive, token_ids

# %%
# include: field_sizes

# %% [markdown]
# **Predict.** The base of the rotary embedding of this model is 100,000. A loader that does not find
# it takes 10,000, the usual value. What happens to `The capital of France is`: (a) an error, (b)
# nonsense, (c) ` Paris`? *Your answer:*

# %%
# include: check_architecture, head_sizes, rope_base, end_tokens

# %%
# include: read_config

# %%
check("2.3")

# %%
# Experiment: the config
config = read_config(MODEL)
for name, value in vars(config).items():
    print(f"{name} = {value}")

# %%
# Experiment: spellings
raw = json_file(MODEL / "config.json")
new = {"rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"}, "rope_theta": None}
scaled = {"rope_scaling": {"type": "linear", "factor": 2.0}}
print("base, old place:", rope_base(raw), "| new place:", rope_base(raw | new))
print("base, scaled:", refusal(rope_base, raw | scaled))
no_dim, wide = {"head_dim": None}, {"head_dim": 128}
for label, change in (("absent", no_dim), ("128", wide)):
    print(f"heads, head_dim {label}:", *head_sizes(raw | change).values())
ten = {"num_attention_heads": 10, "num_key_value_heads": None}
print("heads, ten of them:", refusal(head_sizes, raw | no_dim | ten))
print("architecture:", refusal(check_architecture, raw | {"architectures": ["GPT2LMHeadModel"]}))
print("variant:", refusal(check_architecture, raw | {"attention_bias": True}))
print("end:", end_tokens({"eos_token_id": 2}, {"eos_token_id": [2, 0]}), end_tokens({}, {}))

# %% [markdown]
# Now the missed base. The forward pass is chapter 04's; here it only shows what a config does.


# %%
def next_token(config, weights, ids):
    """The most probable next token, its probability, and all logits [V]."""
    from solutions.forward_pass import Llama

    logits = Llama(config, weights).forward(torch.tensor([ids]), torch.arange(len(ids))[None])[0]
    best = int(logits.argmax())
    return text.decode([best]), logits.softmax(-1)[best].item(), logits


# %%
# Experiment: a base that was missed
stored = read_safetensors(path)
story = "Once upon a time there was a little girl who lived in a small house near the forest. "
story = text.encode(story) * 50
print("tokens before the prompt   base 100,000     base 10,000   logits differ by")
for n in (0, 450, 900):
    word, sure, right = next_token(config, stored, story[:n] + ids)
    other, unsure, wrong = next_token(replace(config, rope_theta=10000.0), stored, story[:n] + ids)
    apart = (right - wrong).abs().max()
    print(f"{n:24}   {word!r:8} {sure:.3f}   {other!r:8} {unsure:.3f}   {apart:16.1f}")
del stored

# %% [markdown]
# No error, and a short text does not show it. That is why an unknown spelling must be refused and
# never replaced by a usual value.
#
# ## 2.4 The tensors there must be
#
# The config alone fixes the name and shape of every tensor. So the loader knows what has to be in
# the files before it opens one.
#
# **Predict.** A 13B model has 40 layers, and its head is not tied to its embedding. How many tensors
# has it? *Your answer:*

# %%
# include: expected_tensors

# %%
check("2.4")

# %%
# Experiment: sizes before a file is opened
wide = {"num_attention_heads": 40, "num_key_value_heads": 40, "head_dim": 128, "vocab_size": 32000}
llama_13b = replace(
    config,
    hidden_size=5120,
    intermediate_size=13824,
    num_hidden_layers=40,
    tie_word_embeddings=False,
    **wide,
)
for label, sizes in (("bundled", config), ("13B", llama_13b)):
    shapes = expected_tensors(sizes)
    count_all = sum(math.prod(shape) for shape in shapes.values())
    print(f"{label}: {len(shapes)} tensors, {count_all:,} weights, ", end="")
    print(f"{4 * count_all / 1e9:.2f} GB in float32, {2 * count_all / 1e9:.2f} GB in 16 bits")
size_13b = 4 * count_all

# %% [markdown]
# ## 2.5 Shards
#
# Large models come in pieces of a few GB with an index that says which tensor is in which file. The
# index is one more thing that can be wrong, and it holds names of files, written by a stranger.
#
# **Predict.** The index says that a tensor is in `../../.ssh/id_ed25519`. What should happen? And
# when three of ten shards are missing, how many errors does a person want? *Your answer:*

# %%
# include: SINGLE, INDEX

# %%
# include: weight_files, read_checkpoint

# %%
check("2.5")

# %% [markdown]
# A model of two thin layers will do to see the errors: 21 tensors in three shards.


# %%
thin = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
small = replace(config, vocab_size=64, num_attention_heads=2, num_key_value_heads=1, **thin)
small = replace(small, tie_word_embeddings=False)
drawn = {n: torch.full(shape, 0.5) for n, shape in expected_tensors(small).items()}


def write_shards(name, shards=3):
    """The thin model in a folder of its own; the index as a dict that can be damaged."""
    folder = scratch / name
    folder.mkdir()
    places = {
        n: f"model-{k % shards + 1:05}-of-{shards:05}.safetensors" for k, n in enumerate(drawn)
    }
    for file in set(places.values()):
        save_file({n: drawn[n] for n in drawn if places[n] == file}, folder / file)
    write_index(folder, places)
    return folder, places


def write_index(folder, places):
    (folder / INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")


# %%
# Experiment: shards that are wrong
folder, places = write_shards("shards")
read = read_checkpoint(folder)
print("whole:", len(read), "tensors,", len(weight_files(folder)), "files")
norm, first, second = "model.norm.weight", *sorted(set(places.values()))[:2]
for label, wrong in (
    ("a path", {norm: "../../.ssh/id_ed25519"}),
    ("a pickle", {norm: "pytorch_model.bin"}),
    ("another place", {norm: first if places[norm] != first else second}),
):
    write_index(folder, places | wrong)
    print(f"{label}:", refusal(read_checkpoint, folder))
write_index(folder, places)
del read
for lost in (first, second):
    (folder / lost).unlink()
print("two lost:", refusal(read_checkpoint, folder))

# %% [markdown]
# Why a pickle is refused, whatever it is called:


# %%
# Experiment: a pickle runs code
class Weights:
    def __reduce__(self):
        return print, ("This line was printed by opening a file of weights.",)


pickled = scratch / "pytorch_model.bin"
pickled.write_bytes(pickle.dumps(Weights(), protocol=2))
pickle.loads(pickled.read_bytes())
try:
    torch.load(pickled)
except (pickle.UnpicklingError, RuntimeError) as problem:
    print("torch.load:", str(problem).split(".")[0])

# %% [markdown]
# It could have been any function. `torch.load` has refused such files by default since version 2.6;
# safetensors has nothing to run.
#
# ## 2.6 One report
#
# A person who mends a checkpoint one error at a time fetches it again for each. So: everything that
# is missing, unexpected or misshapen, at once.
#
# **Predict.** This model ties its head to the embedding. Somebody's file has a `lm_head.weight` all
# the same. Is that an error? And if the head is *not* tied and the file has none? *Your answer:*

# %%
# include: DERIVED, HEAD

# %%
# include: match_tensors

# %%
check("2.6")

# %%
# Experiment: one report
damaged = dict(drawn)
up = "model.layers.0.mlp.up_proj.weight"
damaged["model.layers.1.mlp.up_proj.bias"] = torch.zeros(32)
damaged[up] = damaged[up].T
damaged[norm] = damaged[norm].to(torch.int8)
damaged["layers.1.input_layernorm.weight"] = damaged.pop("model.layers.1.input_layernorm.weight")
damaged["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
print(refusal(match_tensors, damaged, small))

# %%
# Experiment: a head that is tied, or not
tied = replace(small, tie_word_embeddings=True)
bare = {n: tensor for n, tensor in drawn.items() if n != HEAD}
for label, found, sizes in (
    ("tied, absent", bare, tied),
    ("tied, there all the same", drawn, tied),
    ("not tied, there", drawn, small),
    ("not tied, absent", bare, small),
):
    print(f"{label}: {refusal(match_tensors, found, sizes)}")

# %% [markdown]
# ## 2.7 Four stages
#
# Now the parts go together: config, instantiate, read, move. `stored_tensors` is given.
#
# **Predict.** Which of the four takes longest when the file was read a moment ago, so that the
# system still has it in memory? And when it has to come from the disk? *Your answer:*

# %%
# include: stored_tensors

# %%
# include: STAGES, LoadedModel

# %%
# include: load_model

# %%
check("2.7")

# %%
# include: load_weights

# %%
# Experiment: four stages
load_model(MODEL)  # not counted: the first load of a process is slower
print(f"{'':17}" + "".join(f"{stage:>13}" for stage in STAGES) + "    (ms)")
told = []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    told.clear()
    loaded = load_model(MODEL, dtype, progress=lambda *call: told.append(call))
    shown = "".join(f"{1000 * seconds:13.1f}" for seconds in loaded.stages.values())
    print(f"{dtype!s:17}{shown}")
print(f"progress was told {len(told)} times, first {told[0]}, last {told[-1]}")
del loaded

# %% [markdown]
# From memory, reading is quick; in another dtype, moving takes longest, since every number is
# converted. From a disk, reading takes longest, as you will see below.
#
# What does a load hold in memory while it runs? `progress` can ask. The next cell does that in a
# new process, so that nothing is counted which earlier cells left behind. There it is our loader.

# %%
program = """
import json, sys
import psutil, torch
from solutions.loader import load_model

before, seen = psutil.Process().memory_info().rss, [(0, 0)]
def progress(done, total):
    seen.append((done / 1e6, (psutil.Process().memory_info().rss - before) / 1e6))
weights = load_model(sys.argv[1], getattr(torch, sys.argv[2]), progress=progress).weights
seen.append((seen[-1][0], (psutil.Process().memory_info().rss - before) / 1e6))
print(json.dumps([sum(weight.nbytes for weight in weights.values()) / 1e6, seen]))
"""


def run(program, *arguments, **variables):
    """What a Python program prints in a process of its own, with these environment variables."""
    place = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | place | variables,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout


# %%
# Experiment: memory while loading
fig, ax = plt.subplots(num="load_memory", figsize=(7, 3), layout="constrained")
for dtype, colour, style in (("float32", BLUE, "-"), ("bfloat16", ORANGE, "--")):
    result, seen = json.loads(run(program, MODEL, dtype))
    most, (_, after) = max(held for _, held in seen), seen[-1]
    print(f"to {dtype:9} result {result:3.0f} MB, most {most:3.0f} MB, afterwards {after:3.0f} MB")
    ax.plot(*zip(*seen, strict=True), style, color=colour, label=f"to {dtype}")
ax.set(xlabel="read from the file (MB)", ylabel="resident memory, growth (MB)")
ax.legend()
plt.show()

# %% [markdown]
# In float32 the result *is* the file: views of it. In bfloat16 there are both for a while, the
# result and the pages of the file, and then the map closes.
#
# Now from the disk. Linux drops a file from its cache when asked, page by page, unless somebody has
# the page mapped; and it counts what a process really fetched from storage. Elsewhere this
# experiment measures the cache again, and says so.


# %%
def forget(file):
    """Ask the system to drop a file from its page cache. Only Linux has a way to ask."""
    if sys.platform == "linux":
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fetched():
    """Bytes that this process has fetched from storage so far, where Linux counts them."""
    return psutil.Process().io_counters().read_bytes if sys.platform == "linux" else 0


def stages_of(folder, dtype):
    """Seconds of read, seconds of move, bytes fetched: of three loads the one with the middle sum."""
    runs = []
    for _ in range(3):
        forget(folder / "model.safetensors")
        before = fetched()
        stages = load_model(folder, dtype).stages
        runs.append((stages["read"], stages["move"], fetched() - before))
    return sorted(runs, key=lambda run: run[0] + run[1])[1]


# %%
# Experiment: from the disk, in two dtypes
measured = {}
with tempfile.TemporaryDirectory(dir=MODELS, prefix=".chapter-02-") as name:
    print("in the file  wanted      MB  of them from disk  read s  move s")
    for stored in (torch.float32, torch.bfloat16):
        folder = Path(name) / str(stored)  # copies that nobody else has mapped, 807 MB for a moment
        folder.mkdir()
        (folder / "config.json").write_bytes((MODEL / "config.json").read_bytes())
        save_file(load_model(MODEL, stored).weights, folder / "model.safetensors")
        size = (folder / "model.safetensors").stat().st_size / 1e6
        for dtype in (torch.float32, torch.bfloat16):
            read, move, from_disk = measured[stored, dtype] = stages_of(folder, dtype)
            shown = f"{from_disk / 1e6:17.0f}  {read:6.3f}  {move:6.3f}"
            print(f"{str(stored)[6:]:11}  {str(dtype)[6:]:8}  {size:4.0f}  {shown}")

# %% [markdown]
# The claim of the field, for a 13B model: 20 s from disk to memory, 5 s from memory to the GPU, and
# half precision halves both. Scale your own times by bytes:


# %%
def to_gpu(megabytes=256):
    """Seconds a byte from memory to the GPU, or None where there is none."""
    if not torch.cuda.is_available():
        return None
    block = torch.ones(megabytes * 2**18)
    block[:1].to("cuda")  # the first call sets things up
    torch.cuda.synchronize()
    began = time.perf_counter()
    block.to("cuda")
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / block.nbytes


# %%
# Experiment: claimed beside measured
full, _, from_disk = measured[torch.float32, torch.float32]
shorter, *_ = measured[torch.bfloat16, torch.bfloat16]
converted = sum(measured[torch.float32, torch.bfloat16][:2])
per_byte, size = full / path.stat().st_size, size_13b / 1e9
print("claimed: 13B: 20 s disk to RAM")
print(
    f"   here: {size_13b * per_byte:.0f} s for {size:.0f} GB at {1e-9 / per_byte:.1f} GB/s ", end=""
)
print(f"({from_disk / path.stat().st_size:.0%} of it from the disk)")
print(f"         20 s would be {size / 20:.1f} GB/s in float32, {size / 40:.1f} GB/s in 16 bits")
print("claimed: 5 s RAM to GPU")
move = to_gpu()
shown = "no GPU here" if move is None else f"{size_13b * move:.1f} s for {size:.0f} GB"
print(f"   here: {shown}; 5 s would be {size / 5:.1f} GB/s in float32, {size / 10:.1f} in 16 bits")
print("claimed: half precision halves both")
print(f"   here: a file in bfloat16 takes {shorter / full:.2f} of the time of one in float32;")
print(f"         a float32 file converted while loading takes {converted / full:.2f} of it")

# %% [markdown]
# Half precision on the *disk* halves the reading. Half precision asked for at load time reads every
# byte and then converts: it saves memory afterwards, and no reading.
#
# ### Which dtype on a CPU?
#
# **Predict.** Multiply one row (decode) and 128 rows (prefill) by a matrix of the model, in float32,
# bfloat16 and float16. Which is fastest on your processor? And on one that is five years older?
# *Your answer:*

# %%
program = """
import time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
print(torch.backends.cpu.get_cpu_capability(), "instructions, one thread")
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    weights = [torch.randn(1536, 576).to(dtype) for _ in range(45)]
    shown = []
    for rows in (1, 128):
        x, taken = torch.randn(rows, 576).to(dtype), []
        for _ in range(7):
            began = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(x, weight)
            taken.append(time.perf_counter() - began)
        shown.append(f"{rows} rows {1000 * min(taken):7.1f} ms")
    print(f"{str(dtype)[6:]:9}", *shown, sep="   ")
"""

# %%
# Experiment: a product in three dtypes
older = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # as if it had no more
for label, variables in (("this processor", {}), ("the same, held to AVX2", older)):
    print(f"{label}; {run(program, **variables).strip()}")

# %% [markdown]
# Sixteen bits are half the bytes, and a single row waits for bytes. With many rows the arithmetic
# counts, and a processor without instructions for a format converts number by number: then the same
# dtype that won with one row is several times slower. So nobody can name the fastest dtype for a
# machine that they have not measured. float32 is computed well by all of them, and is the default of
# `load_model`; where bfloat16 wins, ask for it.
#
# ## GGUF: where the bundled model comes from
#
# The model did not come in float32. The course fetched 98 MB of GGUF, a format whose tensors are made
# of *blocks*: some scales, then a few bits for each weight. The readers of the blocks are given.

# %%
# include: decode_f32, decode_f16, decode_q8_0

# %%
# include: decode_q4_1

# %%
# include: TensorType, TENSOR_TYPES

# %% [markdown]
# **Predict.** A block of type Q4_1 has 20 bytes for 32 weights: two float16 numbers d and m, and 32
# numbers q of 4 bits. A weight is d q + m. How many bits is that a weight? How many different values
# can the 32 weights have? *Your answer:*

# %%
from solutions.gguf import hf_tensors, read_gguf, read_tensor

source = read_gguf(GGUF) if GGUF.is_file() else None
print(f"{len(source.tensors)} tensors" if source else f"{GGUF} is missing: python -m course model")
gate = "blk.0.ffn_gate.weight"  # model.layers.0.mlp.gate_proj.weight of the converted file

# %%
# Experiment: one block by hand
at = source.tensors[gate].offset
block = source.data[at : at + 20]
print(f"byte {at:,} of the file: {block.hex(' ')}")
d, m = struct.unpack("<2e", block[:4])
for name, pair, value in (("d", block[:2], d), ("m", block[2:4], m)):
    print(f"{name} = bytes {pair.hex(' ')} = 0x{pair[::-1].hex()} = {value:.7f}")
low, high = [byte & 15 for byte in block[4:]], [byte >> 4 for byte in block[4:]]
print("q  0 to 15, the low halves :", *low)
print("q 16 to 31, the high halves:", *high)
by_hand = [d * q + m for q in low + high]
print("weights 0 to 3:", *(f"{weight:.7f}" for weight in by_hand[:4]))
stored = read_safetensors(path)["model.layers.0.mlp.gate_proj.weight"]
print("in the other file:", *(f"{weight:.7f}" for weight in stored[0, :4].tolist()))

# %% [markdown]
# So a weight takes 8 x 20 / 32 = 5 bits, and the 32 weights of a block can have 16 different values.

# %%
# Experiment: whole matrices
decoded = torch.from_numpy(read_tensor(source, gate).copy())
print(f"{gate}: {list(decoded.shape)}, largest difference {(decoded - stored).abs().max():.1e}")
stored, same = read_safetensors(path), 0
for name, weight in hf_tensors(source):
    same += stored[name].equal(torch.from_numpy(weight.copy()))
print(f"equal to the converted file: {same} of {len(stored)} tensors")
row_bytes = 576 // 32 * 34  # Q8_0: 34 bytes for 32 weights
at = source.tensors["token_embd.weight"].offset + token * row_bytes
raw = np.frombuffer(source.data[at : at + row_bytes], np.uint8)
print(f"{text.decode([token])!r} again, {row_bytes} bytes from byte {at:,}:", end=" ")
print("equal" if row.equal(torch.from_numpy(decode_q8_0(raw).flatten())) else "differs")

# %%
# Experiment: bits a weight
print("type   bits   tensors      weights       MB   in float32")
for kind in TENSOR_TYPES.values():
    held = [info for info in source.tensors.values() if info.type == kind.name]
    weights, nbytes = sum(math.prod(i.shape) for i in held), sum(i.nbytes for i in held)
    shown = f"{len(held):8} {weights:12,} {nbytes / 1e6:8.2f} {4 * weights / 1e6:9.2f} MB"
    print(f"{kind.name:5} {kind.bits:5.1f}  {shown}")
weights, nbytes = (
    sum(w.numel() for w in stored.values()),
    sum(i.nbytes for i in source.tensors.values()),
)
print(
    f"all   {8 * nbytes / weights:5.1f}  {len(stored):8} {weights:12,} {nbytes / 1e6:8.2f}", end=""
)
print(f" {4 * weights / 1e6:9.2f} MB; the file has {len(source.data) / 1e6:.2f} MB")

# %% [markdown]
# The last row that matters is the first one of this notebook: 576 numbers for ` France`. Your own
# loader gives them to chapter 04's forward pass:

# %%
# Experiment: to the numbers of chapter 04
loaded = load_model(MODEL)
x = loaded.weights["model.embed_tokens.weight"][ids]
print("rows of the prompt:", list(x.shape), x.dtype)
print("row 3:", *(f"{number:.6f}" for number in x[3, :4].tolist()))
word, sure, _ = next_token(loaded.config, loaded.weights, ids)
print(f"next token: {word!r} {sure:.3f}")

# %%
progress()

# %% [markdown]
# ## What comes next
#
# You have a config and 272 tensors, checked, in memory at the price of the pages that are used.
# Chapter 03 makes them smaller: 8, 4 and 2 bits, without ever holding the whole model.
