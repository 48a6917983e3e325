"""A throughput result as a picture: each row of the log beside its raw row, writes and reads apart."""

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .throughput_result import Result, Row

_RAW, _OURS = "#b8c4d0", "#1f6f8b"


def write_plot(result: Result, path: Path) -> None:
    """Write the picture; the suffix of `path` decides the format."""
    writes = [row for row in result.rows if row.mb_per_s_synced]
    reads = [row for row in result.rows if not row.mb_per_s_synced]
    figure = Figure(figsize=(10, 1.6 + 0.36 * len(result.rows)), layout="constrained")
    heights = [max(len(rows), 1) for rows in (writes, reads)]
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    _draw(upper, writes, "Writes")
    _draw(lower, reads, "Reads")
    parameters, environment = result.parameters, result.environment
    figure.suptitle(
        f"timestone bench segment-throughput: {parameters['count']:,} records of {parameters['record_bytes']:,} bytes, "
        f"ack {parameters['ack']}",
        fontsize=11,
        fontweight="bold",
    )
    lower.set_xlabel(
        f"MB of records a second on a logarithmic scale, median of {parameters['repeat']}; the thin line is the range\n"
        f"{environment.processor}, {environment.cpu_count} CPUs, {environment.filesystem}, {environment.python}",
        fontsize=8,
    )
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, rows: list[Row], title: str) -> None:
    """One group of rows as bars, on a logarithmic scale: the slowest and the fastest row are thousands apart."""
    places, place = [], 0.0
    for row in rows:
        place += 1.0 if row.peer else 1.35  # some space above each raw row and its followers
        places.append(place)
        speed = row.mb_per_s
        axes.barh(place, speed.median, height=0.8, color=_OURS if row.peer else _RAW)
        axes.plot([speed.low, speed.high], [place, place], color="#333333", linewidth=0.8)
        ratio = f"   {row.ratio.median:.2f} of raw" if row.ratio else ""
        axes.text(speed.high * 1.06, place, f"{speed.median:,.0f}{ratio}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(*_decades(rows))
    axes.set_yticks(places, [row.name for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="x", labelsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)


def _decades(rows: list[Row]) -> tuple[float, float]:
    """Return the range from the decade below the slowest run to behind the label of the fastest."""
    slowest = min((row.mb_per_s.low for row in rows), default=1.0)
    fastest = max((row.mb_per_s.high for row in rows), default=1.0)
    low = 10.0 ** math.floor(math.log10(slowest) - 0.1)
    return low, fastest * (fastest / low) ** 0.18
