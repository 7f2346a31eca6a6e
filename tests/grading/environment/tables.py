"""Tables of nvidia-smi as drivers of different years print them, with figures of our own."""

MIB = 1048576


def table(version: str, cuda: str | None, *devices: str, processes: str = "") -> str:
    """A whole table around the lines of its devices."""
    line = "+" + "-" * 77 + "+"
    head = f"| NVIDIA-SMI {version:13} Driver Version: {version:13}"
    head += f"CUDA Version: {cuda:8} |" if cuda else " " * 23 + "|"
    titles = "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
    titles += "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |"
    return "\n".join(
        ["Tue Mar  5 10:11:12 2024", line, head, titles, line, *devices, line, processes]
    )


def device(number: int, name: str, mode: str, memory: str, mig: bool = False) -> str:
    """The two or, with the MIG column, three lines of a device. Bus ids go from 3A upwards."""
    lines = [
        f"|   {number}  {name:20} {mode:4} | 00000000:{number + 58:02X}:00.0 Off |          Off |",
        f"| N/A   34C    P0    36W / 300W | {memory:>20} |      0%      Default |",
    ]
    lines += [
        "|                               |                      |             Disabled |"
    ] * mig
    return "\n".join(lines)


def as_csv(columns: list[str], *rows: list[str]) -> str:
    """What --query-gpu prints."""
    return "".join(", ".join(row) + "\n" for row in (columns, *rows))


MIG_DEVICES = """
+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|==================+======================+===========+=======================|
|  1    2   0   0  |     11MiB / 20096MiB | 42      0 |  3   0    2    0    0 |
|                  |      0MiB / 32767MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
"""
PROCESSES = """
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |
|    0   N/A  N/A      4242    C+G   C:\\Windows\\explorer.exe            N/A    |
|    0   N/A  N/A      4243      C   python3                          1024MiB |
+-----------------------------------------------------------------------------+"""
FAILURE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
    "that the latest NVIDIA driver is installed and running.\n"
)
