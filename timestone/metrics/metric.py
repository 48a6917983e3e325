"""Metric: name, kind, help and samples, as a part of a server passes it to the page of `timestone serve`."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from timestone.metrics.histogram import Histogram

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_SUFFIXES = {"counter": "_total", "info": "_info"}
Kind = Literal["counter", "gauge", "histogram", "info", "unknown"]


class Metric(NamedTuple):
    """One metric with all its samples, without the prefix `timestone_<part>_` and without the suffix `_total`.

    Its unit is the end of its name: `_bytes` or `_seconds`."""

    name: str
    kind: Kind
    help: str
    """One line for people."""
    samples: Sequence[tuple[Mapping[str, str], float | Histogram]]
    """Labels and value. Labels never hold a client id, a topic or other text of a client."""

    @property
    def suffix(self) -> str:
        """Return the end of the names of its samples, by its kind."""
        return _SUFFIXES.get(self.kind, "")


def series_name(name: str, labels: Mapping[str, str]) -> str:
    """Return the name of a sample with its labels, as Prometheus and OpenMetrics write it."""
    if not labels:
        return name
    return (
        name + "{" + ",".join([f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items()]) + "}"
    )


def metric(name: str, kind: Kind, help_: str, value: float | Histogram) -> Metric:
    """Return a metric with one sample without labels."""
    return Metric(name, kind, help_, [({}, value)])


def by_label(name: str, help_: str, label: str, values: Mapping[str, int]) -> Metric:
    """Return a counter with a sample for each value of one label."""
    return Metric(name, "counter", help_, [({label: key}, value) for key, value in values.items()])


def added(parts: Sequence[Sequence[Metric]]) -> Sequence[Metric]:
    """Return the metrics of several like parts as those of one: the sums of their samples. Gauges are sums, too."""
    if len(parts) == 1:
        return parts[0]
    found: list[Metric] = []
    for same in zip(*parts, strict=True):
        sums: dict[str, tuple[Mapping[str, str], float | Histogram]] = {}
        for one in same:
            for labels, value in one.samples:
                name = series_name("", labels)
                sums[name] = labels, _sum(sums[name][1], value) if name in sums else value
        found.append(same[0]._replace(samples=list(sums.values())))
    return found


def _sum(one: float | Histogram, other: float | Histogram) -> float | Histogram:
    if not isinstance(one, Histogram) or not isinstance(other, Histogram):
        assert not isinstance(one, Histogram) and not isinstance(other, Histogram)
        return one + other
    total = Histogram()
    total.add(one)
    total.add(other)
    return total
