"""A comparison of servers as a picture: one panel a scenario, one bar a server."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..environment import Environment
from .comparison import Comparison
from .target import NULL_SERVERS

_OURS, _THEIRS = "#1f6f8b", "#b8c4d0"


def write_plot(environment: Environment, comparisons: Sequence[Comparison], path: Path) -> None:
    """Write the picture; the suffix of `path` decides the format. The null servers are left out, which would dwarf the
    rest."""
    heights = [sum(row.name not in NULL_SERVERS for row in one.rows) + 1.4 for one in comparisons]
    figure = Figure(figsize=(9, 0.9 + 0.34 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(comparisons), 1, height_ratios=heights, squeeze=False)
    for axes, comparison in zip(panels[:, 0], comparisons, strict=True):
        _draw(axes, comparison)
    figure.suptitle("timestone bench mqtt", fontsize=11, fontweight="bold")
    panels[-1, 0].set_xlabel(
        "medians, the thin line is the range; "
        f"{environment.processor}, {environment.cpu_count} CPUs, {environment.python}",
        fontsize=7,
    )
    figure.savefig(path, dpi=100)


def _draw(axes: Axes, comparison: Comparison) -> None:
    rows = [row for row in comparison.rows if row.name not in NULL_SERVERS]
    key, unit, factor = _headline(comparison)
    for place, row in enumerate(rows):
        spread = row.figures[key]
        color = _OURS if row.name.startswith("timestone") else _THEIRS
        axes.barh(place, spread.median / factor, height=0.72, color=color)
        axes.plot([spread.low / factor, spread.high / factor], [place, place], color="#333333", linewidth=0.8)
        axes.text(spread.high / factor, place, f"  {_label(spread.median / factor)}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_title(f"{comparison.scenario.describe()}\n{unit}", loc="left", fontsize=8)
    axes.set_xlim(0, max(row.figures[key].high for row in rows) / factor * 1.12)
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _headline(comparison: Comparison) -> tuple[str, str, float]:
    """Return the figure to draw, its name, and its divisor."""
    scenario = comparison.scenario
    if scenario.name == "connection":
        return "per_s", "connections a second", 1
    if scenario.rate is not None:
        key = "delivery_p50_us" if scenario.subscribers else "ack_p50_us"
        return key, "median latency in microseconds: less is better", 1
    what = "deliveries" if scenario.subscribers or scenario.name == "session-unload" else "messages"
    return "per_s", f"thousand {what} a second", 1000


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
