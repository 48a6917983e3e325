"""Recomputation of windows from the table `clean`: those with late messages, or all within a range of event time.

The new windows replace the old ones in one commit, and the late messages that they count are removed in the next, so
repeating it, also after a kill between the two, gives the same tables. Only closed windows are touched; the stream,
which may run at the same time, writes only open windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ..config import PipelineConfig
from ..delta.data_file import DataFile
from ..delta.progress import MINUTE_US
from ..delta.snapshot import Snapshot
from ..delta.tables import Tables
from ..delta.warehouse import Commit, State, Warehouse, Work
from ..errors import Conflict
from ..failure import spark_errors_in_one_line
from ..steps.frames import Frames, Step, in_silence
from ..steps.rewrite import without
from ..steps.windows import all_averages

_TRIES = 5
_RANGES = 32
"""Beyond this number, ranges of late messages are combined into one: more work, same result."""


@dataclass(frozen=True, slots=True)
class Span:
    """Event times [start_us, end_us)."""

    start_us: int
    end_us: int

    def widened(self, minutes: int) -> "Span":
        """Return the smallest span around this one that begins and ends with windows of this length."""
        step = minutes * MINUTE_US
        return Span(self.start_us // step * step, -(-self.end_us // step) * step)


def backfill(
    config: PipelineConfig,
    warehouse: Warehouse,
    spark: SparkSession,
    span: Span | None = None,
    *,
    step: Step = in_silence,
) -> Commit | None:
    """Recompute the windows of `span`, widened to whole windows; without one, all that have late messages. Return None
    if there was nothing to do.

    Late messages of open windows are counted when those close, and need no backfill. Windows of a length that is not in
    the settings stay as they are. Call `step` with what begins. Hold `warehouse.role(MAINTENANCE)`. Raises
    QueryFailed, Conflict."""
    with spark_errors_in_one_line():
        for _ in range(_TRIES - 1):
            try:
                return _Backfill(config, warehouse, spark, step).run(span)
            except Conflict:
                step("another process has replaced files: once more")
        return _Backfill(config, warehouse, spark, step).run(span)


class _Backfill:
    def __init__(self, config: PipelineConfig, warehouse: Warehouse, spark: SparkSession, step: Step) -> None:
        self._config = config
        self._warehouse = warehouse
        self._step = step
        self._frames = Frames(spark, warehouse)
        self._tables: Tables = warehouse.tables
        self._time = config.message.time

    def run(self, span: Span | None) -> Commit | None:
        # One state for all: later commits of the stream are ignored and not touched. Of a batch that is being
        # committed, it has at most more messages: their windows are open, or they are late and stay so.
        state = self._warehouse.state()
        length = self._config.windows.block_minutes
        spans = self._late_spans(state) if span is None else [span.widened(length)]
        closed = state.progress.closed(self._config.windows.minutes)
        if not spans or not closed:
            return None
        tables = self._tables
        with self._warehouse.work() as work:
            windows = without(
                self._frames,
                tables.windows,
                _overlapping(state.of(tables.windows), "start", spans),
                reduce(Column.__or__, [self._replaced(spans, length, at) for length, at in closed.items()]),
                work,
            )
            self._write_windows(state, spans, work)
            counted_us = min(closed.values())
            late = without(
                self._frames,
                tables.late,
                _overlapping(state.of(tables.late), self._time, spans),
                # An open window of any length may not have counted it.
                _within(self._time, spans) & (f.unix_micros(self._time) < counted_us),
                work,
            )
            counted = _rows(late) != _rows(work.of(tables.late))
            if span is None and not counted and self._same(windows, work):
                return None
            if not windows and not late and not work.of(tables.windows):
                return None
            for table, removed in ((tables.windows, windows), (tables.late, late)):
                snapshot = state.of(table)
                work.commit(snapshot, {"backfill": (snapshot.mark("backfill") or 0) + 1}, removed)
            return Commit("backfill", state.number, tuple(work.added), work.removed)

    def _late_spans(self, state: State) -> list[Span]:
        files = state.of(self._tables.late).files()
        if not files:
            return []
        step = self._config.windows.block_minutes * MINUTE_US
        late = self._frames.read(self._tables.late, files)
        block = f.floor(f.unix_micros(self._time) / f.lit(step)).alias("block")
        blocks = sorted(row["block"] for row in late.select(block).distinct().collect())
        spans = _merged([Span(one * step, (one + 1) * step) for one in blocks])
        return spans if len(spans) <= _RANGES else [Span(spans[0].start_us, spans[-1].end_us)]

    def _same(self, before: Sequence[DataFile], work: Work) -> bool:
        """Return whether the computed windows equal the existing ones."""
        table = self._tables.windows
        after = work.of(table)
        if _rows(before) != _rows(after):
            return False
        return self._frames.read(table, after).exceptAll(self._frames.read(table, before)).isEmpty()

    def _write_windows(self, state: State, spans: Sequence[Span], work: Work) -> None:
        clean = self._tables.clean
        parts: list[tuple[int, DataFrame]] = []
        files = _overlapping(state.of(clean), self._time, spans)
        if not files:
            return
        self._say_cost(files)
        for minutes, until_us in state.progress.closed(self._config.windows.minutes).items():
            rows = self._frames.read(clean, files)
            chosen = _within(self._time, spans) & (f.unix_micros(self._time) < until_us)
            parts.append((minutes, rows.where(chosen)))
        rows = all_averages(parts, self._config.message)
        self._frames.write(self._tables.windows, rows.coalesce(1), work)

    def _say_cost(self, files: Sequence[DataFile]) -> None:
        lengths, rows = self._config.windows.minutes, sum(one.rows for one in files)
        said = ", ".join(map(str, lengths))
        self._step(
            f"windows of {said} min from {rows:,} messages: up to {len(lengths) * rows:,} rows,"
            " one a device and window"
        )

    def _replaced(self, spans: Sequence[Span], minutes: int, until_us: int) -> Column:
        """Return the condition for rows of windows of this length that are recomputed."""
        closed = f.unix_micros("start") < until_us
        return (f.col("minutes") == minutes) & closed & _within("start", spans)


def _within(column: str, spans: Sequence[Span]) -> Column:
    moment = f.unix_micros(column)
    return reduce(Column.__or__, [(moment >= one.start_us) & (moment < one.end_us) for one in spans])


def _overlapping(snapshot: Snapshot, column: str, spans: Sequence[Span]) -> list[DataFile]:
    files = snapshot.files(column, min(one.start_us for one in spans), max(one.end_us for one in spans))
    return [one for one in files if any(one.overlaps(column, span.start_us, span.end_us) for span in spans)]


def _rows(files: Sequence[DataFile]) -> int:
    return sum(one.rows for one in files)


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].end_us == span.start_us:
            merged[-1] = Span(merged[-1].start_us, span.end_us)
        else:
            merged.append(span)
    return merged
