"""Text formats of metrics: OpenMetrics 1.0 and the text format 0.0.4 of Prometheus, chosen by the header Accept.

docs/decisions/0038-metrics-text.md says why no library does this."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from timestone.metrics.histogram import BOUNDS_S, Histogram
from timestone.metrics.metric import Metric, series_name

OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS, _OPENMETRICS_VERSIONS = "application/openmetrics-text", ("", "1.0.0", "0.0.1")
_PLAIN = ("text/plain", "text/*", "*/*")
_UNITS = ("bytes", "seconds", "ratio")
_BOUNDS = (*(repr(bound) for bound in BOUNDS_S), "+Inf")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def wants_openmetrics(accept: str) -> bool:
    """Return whether a header Accept prefers OpenMetrics to plain text; an equal preference is for OpenMetrics."""
    openmetrics = plain = 0.0
    for choice in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        quality = _quality(values.get("q", "1"))
        if media_type == _OPENMETRICS and values.get("version", "").strip('"') in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif media_type in _PLAIN:
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def exposition(metrics: Iterable[Metric], *, openmetrics: bool) -> str:
    """Return the text of metrics with their full names. A metric without samples has no lines."""
    lines = [line for one in metrics if one.samples for line in _lines(one, openmetrics=openmetrics)]
    return "".join(f"{line}\n" for line in [*lines, *(["# EOF"] if openmetrics else [])])


def _lines(one: Metric, *, openmetrics: bool) -> Iterator[str]:
    kind: str
    if openmetrics:
        family, kind, help_ = one.name, one.kind, one.help.translate(_ESCAPES)
    else:
        family, help_ = one.name + one.suffix, one.help.translate(_HELP_ESCAPES)
        kind = {"info": "gauge", "unknown": "untyped"}.get(one.kind, one.kind)
    yield f"# HELP {family} {help_}"
    yield f"# TYPE {family} {kind}"
    unit = one.name.rpartition("_")[2]
    if openmetrics and unit in _UNITS and one.kind != "info":
        yield f"# UNIT {family} {unit}"
    for labels, value in one.samples:
        if isinstance(value, Histogram):
            yield from _histogram_lines(one.name, labels, value)
        else:
            yield f"{series_name(one.name + one.suffix, labels)} {value}"


def _histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    counts = histogram.cumulative()
    for bound, count in zip(_BOUNDS, counts, strict=True):
        yield f"{series_name(name + '_bucket', {**labels, 'le': bound})} {count}"
    yield f"{series_name(name + '_count', labels)} {counts[-1]}"
    yield f"{series_name(name + '_sum', labels)} {histogram.sum_ns / 1e9}"


def named(part: str, metrics: Sequence[Metric]) -> list[Metric]:
    """Return metrics of a part of the server with their full names."""
    return [one._replace(name=f"timestone_{part}_{one.name}") for one in metrics]
