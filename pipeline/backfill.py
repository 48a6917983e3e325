"""Recomputation of windows from the table `clean`: those with late messages, or all within a range of event time.

The new windows replace the old ones in one commit, so repeating it gives the same table. Only closed windows are
touched; the stream, which may run at the same time, writes only open windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from .config import PipelineConfig
from .data_file import DataFile
from .failure import spark_errors_in_one_line
from .frames import Frames, Step, in_silence
from .ledger import Commit, FileKey, State
from .progress import MINUTE_US
from .rewrite import without
from .tables import Tables, tables_of
from .warehouse import MAINTENANCE, Warehouse, Work
from .windows import all_averages

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
    QueryFailed."""
    with spark_errors_in_one_line():
        return _Backfill(config, warehouse, spark, step).run(span)


class _Backfill:
    def __init__(self, config: PipelineConfig, warehouse: Warehouse, spark: SparkSession, step: Step) -> None:
        self._config = config
        self._warehouse = warehouse
        self._step = step
        self._frames = Frames(spark, warehouse)
        self._tables: Tables = tables_of(config)
        self._time = config.message.time

    def run(self, span: Span | None) -> Commit | None:
        # One state for all: later commits of the stream are ignored and not touched.
        state = self._warehouse.ledger.state()
        length = self._config.windows.block_minutes
        spans = self._late_spans(state) if span is None else [span.widened(length)]
        closed = state.progress.closed(self._config.windows.minutes)
        if not spans or not closed:
            return None
        with self._warehouse.work(MAINTENANCE) as work:
            windows = without(
                self._frames,
                self._tables.windows,
                _overlapping(state.of(self._tables.windows.name), "start", spans),
                reduce(Column.__or__, [self._replaced(spans, length, at) for length, at in closed.items()]),
                work,
            )
            self._write_windows(state, spans, work)
            counted_us = min(closed.values())
            late = without(
                self._frames,
                self._tables.late,
                _overlapping(state.of(self._tables.late.name), self._time, spans),
                # An open window of any length may not have counted it.
                _within(self._time, spans) & (f.unix_micros(self._time) < counted_us),
                work,
            )
            if span is None and not self._counted(state, late, work) and self._same(state, windows, work):
                return None
            if not windows and not late and not work.files:
                return None
            return self._warehouse.commit("backfill", [work], removed=[*windows, *late])

    def _late_spans(self, state: State) -> list[Span]:
        files = state.of(self._tables.late.name)
        if not files:
            return []
        step = self._config.windows.block_minutes * MINUTE_US
        late = self._frames.read(self._tables.late, files)
        block = f.floor(f.unix_micros(self._time) / f.lit(step)).alias("block")
        blocks = sorted(row["block"] for row in late.select(block).distinct().collect())
        spans = _merged([Span(one * step, (one + 1) * step) for one in blocks])
        return spans if len(spans) <= _RANGES else [Span(spans[0].start_us, spans[-1].end_us)]

    def _counted(self, state: State, late: Sequence[FileKey], work: Work) -> bool:
        """Return whether a late message is counted in all its windows. One whose longest window is open stays late,
        counted in others or not."""
        return sum(state.files[key].rows for key in late) != work.rows(self._tables.late)

    def _same(self, state: State, windows: Sequence[FileKey], work: Work) -> bool:
        """Return whether the computed windows equal the existing ones."""
        table = self._tables.windows
        before = [state.files[key] for key in windows]
        after = [one for one in work.files if one.table == table.name]
        if sum(one.rows for one in before) != sum(one.rows for one in after):
            return False
        return self._frames.read(table, after, work).exceptAll(self._frames.read(table, before)).isEmpty()

    def _write_windows(self, state: State, spans: Sequence[Span], work: Work) -> None:
        clean = self._tables.clean
        parts: list[tuple[int, DataFrame]] = []
        files = _overlapping(state.of(clean.name), self._time, spans)
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


def _overlapping(files: Sequence[DataFile], column: str, spans: Sequence[Span]) -> list[DataFile]:
    return [one for one in files if any(one.overlaps(column, span.start_us, span.end_us) for span in spans)]


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].end_us == span.start_us:
            merged[-1] = Span(merged[-1].start_us, span.end_us)
        else:
            merged.append(span)
    return merged
