"""The load on a cluster beside others as a picture: one panel a figure, one bar a system."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..environment import Environment
from .goals import Row, Taken, number, rows

_OURS, _THEIRS = "#1f6f8b", "#b8c4d0"
_PANELS = (
    ("qos1", "per_s", "QoS 1, 10 clients, window 100: messages a second"),
    ("puback", "ack_p50_us", "one message at a time, median to PUBACK in µs: less is better"),
    ("append", "mb_per_s", "appends of 64 records of 1,000 bytes, five in flight: MB a second"),
)


def write_plot(environment: Environment, taken: Taken, path: Path) -> None:
    """Write the picture; the suffix of `path` decides the format. A panel without figures is left out."""
    found = rows(taken)
    panels = [
        (title, bars)
        for case, key, title in _PANELS
        if (bars := [row for row in found if row.figure == key and row.case.startswith(case)])
    ]
    heights = [len(bars) + 1.4 for _, bars in panels] or [1.0]
    figure = Figure(figsize=(9, 0.9 + 0.34 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for one, (title, bars) in zip(axes, panels, strict=False):
        _draw(one, title, bars)
    figure.suptitle("timestone bench cluster: three servers on one machine", fontsize=11, fontweight="bold")
    axes[-1].set_xlabel(
        "medians, the thin line is the range; "
        f"{environment.processor}, {environment.cpu_count} CPUs, {environment.python}",
        fontsize=7,
    )
    figure.savefig(path, dpi=100)


def _draw(axes: Axes, title: str, bars: Sequence[Row]) -> None:
    for place, row in enumerate(bars):
        value, name = row.value, row.case.partition(" ")[2]
        color = _OURS if name.partition(",")[0] in ("single", "cluster", "relayed") else _THEIRS
        axes.barh(place, value.median, height=0.72, color=color)
        axes.plot([value.low, value.high], [place, place], color="#333333", linewidth=0.8)
        axes.text(value.high, place, f"  {number(value.median)}", va="center", fontsize=7)
    axes.set_yticks(range(len(bars)), [row.case.partition(" ")[2] for row in bars], fontsize=7)
    axes.invert_yaxis()
    axes.set_title(title, loc="left", fontsize=8)
    axes.set_xlim(0, max(row.value.high for row in bars) * 1.12)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
