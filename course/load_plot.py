"""A picture of a run: how latencies are distributed, and what they do when the rate rises."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

from course import place
from course.load_figures import UNFINISHED, figures, percentile, samples
from course.load_report import Round

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's
STYLES = ("-", "--", "-.", ":")  # no meaning by colour alone
MARKERS = ("o", "x", "^", "s", "+", "v")
PANELS = {
    "first_token": "time to first token",
    "inter_token": "inter-token latency",
    "e2e": "end to end",
}


def steps(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The empirical distribution: x ascending, and the share of values at or below each x."""
    ordered = sorted(values)
    return ordered, [(n + 1) / len(ordered) for n in range(len(ordered))]


def rates(rounds: Sequence[Round]) -> list[float]:
    """The rates, ascending, each once."""
    return sorted({made.rate for made in rounds})


def by_rate(rounds: Sequence[Round], figure: str) -> tuple[list[float], list[float]]:
    """A rate and a figure of each repetition that measured it, in the order of the rates."""
    points = [
        (made.rate, value)
        for made in sorted(rounds, key=lambda made: made.rate)
        if (value := figures(made.outcomes)[figure]) is not None
    ]
    return [rate for rate, _ in points], [value for _, value in points]


def save(path: Path, rounds: Sequence[Round], title: str) -> None:
    """Draw everything into a PNG file. Errors: ValueError when it cannot be written."""
    import matplotlib.pyplot as plt

    figure, data = draw(rounds, title), io.BytesIO()
    figure.savefig(data, format="png", dpi=120)
    plt.close(figure)
    place.put(path, data.getvalue())


def draw(rounds: Sequence[Round], title: str):
    """The figure: three distributions, and what a rate or the time does to the latency."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    figure.suptitle(title)
    for axis, name in zip(axes.flat, PANELS, strict=False):
        _distribution(axis, rounds, name)
    if len(rates(rounds)) > 1:
        _rate_panel(axes[1, 1], rounds)
    else:
        _time_panel(axes[1, 1], rounds)
    return figure


def _distribution(axis, rounds: Sequence[Round], name: str) -> None:
    """One line a rate, all repetitions together."""
    for n, rate in enumerate(rates(rounds)):
        outcomes = [o for made in rounds if made.rate == rate for o in made.outcomes]
        if values := getattr(samples(outcomes), name):
            x, share = steps([value * 1e3 for value in values])
            axis.step(x, share, where="post", label=f"{rate:g} requests/s", **_look(n))
    axis.set(xlabel=f"{PANELS[name]} (ms)", ylabel="share of them at or below", ylim=(0, 1.02))
    if axis.lines:
        if any(max(line.get_xdata()) > 0 for line in axis.lines):
            axis.set_xscale("log")
            _plain(axis.xaxis)
        axis.legend()
    else:
        axis.text(0.5, 0.5, "not measured", ha="center", transform=axis.transAxes)
    axis.grid(alpha=0.3)


def _rate_panel(axis, rounds: Sequence[Round]) -> None:
    """The knee: from some rate on, waiting is all there is."""
    for n, name in enumerate(PANELS):
        x, values = by_rate(rounds, f"{name}_p95")
        if x:
            axis.plot(x, [v * 1e3 for v in values], "o", color=_look(n)["color"], alpha=0.5)
            middle = [
                percentile([v for r, v in zip(x, values, strict=True) if r == rate], 50)
                for rate in dict.fromkeys(x)
            ]
            axis.plot(
                list(dict.fromkeys(x)), [m * 1e3 for m in middle], label=PANELS[name], **_look(n)
            )
    axis.set(xlabel="requests/s", ylabel="p95 (ms); dots: repetitions, line: their median")
    axis.grid(alpha=0.3)
    if axis.lines:
        axis.set_yscale("log")
        _plain(axis.yaxis)
        axis.legend()


def _time_panel(axis, rounds: Sequence[Round]) -> None:
    """One rate only: a queue that grows shows as a line that climbs."""
    streamed = any(o.pieces for made in rounds for o in made.outcomes)
    for n, made in enumerate(rounds):
        ended = [o for o in made.outcomes if o.kind != UNFINISHED]
        points = [(o.sent, o.first_token if streamed else o.e2e) for o in ended]
        points = [(at, value * 1e3) for at, value in points if value is not None]
        if points:
            label = f"repetition {n + 1}"
            look = {"color": _look(n)["color"], "marker": MARKERS[n % len(MARKERS)]}
            axis.plot(*zip(*points, strict=True), ls="", alpha=0.7, label=label, **look)
    name = PANELS["first_token" if streamed else "e2e"]
    axis.set(xlabel="sent, seconds after the start", ylabel=f"{name} (ms)")
    axis.grid(alpha=0.3)
    if axis.lines:
        axis.legend()


def _plain(axis) -> None:
    """Numbers as people write them along a logarithmic axis: 300, not 3 times 10 to the 2."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if low > 0 else 9
    axis.set_minor_locator(ticker.NullLocator())
    if decades < 1:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        subs = (1, 2, 5) if decades < 3 else (1,)
        axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: written(value)))


def written(value: float) -> str:
    """A number for an axis, without a power of ten."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" if value >= 0.001 else f"{value:f}"


def _look(n: int) -> dict:
    """Colour and line style of the nth line."""
    return {"color": COLOURS[n % len(COLOURS)], "linestyle": STYLES[n % len(STYLES)]}
