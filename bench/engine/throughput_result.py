"""The rows of a throughput comparison after all repeats, and the one object `--json` prints."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..environment import Environment
from ..measurement import PERCENTILES, Measurement, Spread
from .cases import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: medians over the repeats, latencies over all calls of all repeats."""

    name: str
    peer: str | None
    repeats: int
    records: int
    calls: int
    size_bytes: int
    records_per_s: Spread
    mb_per_s: Spread
    """10^6 bytes of records a second, until the last call returned."""
    mb_per_s_synced: Spread | None
    """The same until the final fdatasync returned; None for reads."""
    cpu_s_per_gb: Spread
    ratio: Spread | None
    """Records a second over those of the raw row in the same repeat: the figure that depends least on the machine."""
    call_us: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the row under the names of its fields."""
        return {
            "name": self.name,
            "peer": self.peer,
            "repeats": self.repeats,
            "records": self.records,
            "calls": self.calls,
            "size_bytes": self.size_bytes,
            "records_per_s": self.records_per_s.to_json(),
            "mb_per_s": self.mb_per_s.to_json(),
            "mb_per_s_synced": self.mb_per_s_synced.to_json() if self.mb_per_s_synced else None,
            "cpu_s_per_gb": self.cpu_s_per_gb.to_json(),
            "ratio": self.ratio.to_json() if self.ratio else None,
            "call_us": dict(self.call_us),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of the benchmark, with all facts needed to judge it."""

    parameters: Mapping[str, Any]
    environment: Environment
    warnings: Sequence[str]
    rows: Sequence[Row]

    def to_json(self) -> dict[str, Any]:
        """One object: benchmark, parameters, environment, warnings, rows."""
        return {
            "benchmark": "segment-throughput",
            "parameters": dict(self.parameters),
            "environment": asdict(self.environment),
            "warnings": list(self.warnings),
            "rows": [row.to_json() for row in self.rows],
        }


def build_rows(cases: Sequence[Case], runs: Mapping[str, Sequence[Measurement]]) -> list[Row]:
    """Build the rows of `cases` from their measurements: run i of a case is compared with run i of its raw row."""
    return [_row(case, runs[case.name], runs[case.peer] if case.peer else None) for case in cases]


def _row(case: Case, runs: Sequence[Measurement], peers: Sequence[Measurement] | None) -> Row:
    first = runs[0]
    synced = [run.size_bytes / 1e6 / run.synced_s for run in runs if run.synced_s is not None]
    ratio = None
    if peers is not None:
        ratio = Spread.of([_rate(run) / _rate(peer) for run, peer in zip(runs, peers, strict=True)])
    calls = np.concatenate([run.calls_ns for run in runs]) / 1000
    return Row(
        name=case.name,
        peer=case.peer,
        repeats=len(runs),
        records=first.records,
        calls=len(first.calls_ns),
        size_bytes=first.size_bytes,
        records_per_s=Spread.of([_rate(run) for run in runs]),
        mb_per_s=Spread.of([run.size_bytes / 1e6 / run.elapsed_s for run in runs]),
        mb_per_s_synced=Spread.of(synced) if synced else None,
        cpu_s_per_gb=Spread.of([run.cpu_s / (run.size_bytes / 1e9) for run in runs]),
        ratio=ratio,
        call_us={name: float(np.percentile(calls, percent)) for name, percent in PERCENTILES.items()},
    )


def _rate(run: Measurement) -> float:
    return run.records / run.elapsed_s
