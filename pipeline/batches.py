"""One batch of the stream through all tables: bronze, clean, windows, last. One commit, so all of it or nothing.

Spark keeps no state between batches; the tables are the state. The effect of a batch depends on its records and on the
ledger, so a batch that is run again after a crash, with any checkpoint, has the same effect or is found to be done."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from .checkpoint import BatchSpan, batch_span
from .clean import DUPLICATE, SEEN_AT, good, parse, rejected, without_repetitions
from .config import PipelineConfig
from .data_file import DataFile
from .frames import Frames, Step, in_silence
from .last_state import LastState
from .ledger import Commit, State
from .progress import Progress
from .tables import Tables, tables_of
from .warehouse import STREAM, Advance, Warehouse, Work
from .windows import all_averages


class Batches:
    """Callback of `foreachBatch`. One at a time for a warehouse: hold `warehouse.role(STREAM)`."""

    def __init__(
        self,
        config: PipelineConfig,
        warehouse: Warehouse,
        committed: Callable[[Commit], None],
        step: Step = in_silence,
    ) -> None:
        self._config = config
        self._warehouse = warehouse
        self._committed = committed
        self._step = step
        self._tables: Tables = tables_of(config)
        self._last = LastState(warehouse, self._tables, config.message, STREAM)

    def __call__(self, records: DataFrame, number: int) -> None:
        """Process a batch. Raises TablesBehind, and the errors of Spark."""
        state = self._warehouse.ledger.state()
        span = batch_span(self._warehouse.checkpoint, number)
        reached = state.progress.offset
        span.check_follows(reached, fail_on_data_loss=self._config.source.fail_on_data_loss)
        if span.done(reached):
            return
        with self._warehouse.work(STREAM) as work:
            batch = f"batch {state.number + 1} of {span.count_after(reached):,} records"
            frames = Frames(
                records.sparkSession, self._warehouse, lambda table: self._step(f"{batch}: {table}")
            )
            progress, clean = self._run(frames, records, span, state, work)
            advance = Advance(state.progress, progress)
            commit = self._last.commit(frames, "batch", work, clean, progress=advance)
        self._committed(commit)

    def close_windows(self, frames: Frames) -> None:
        """Close every window that has a message, as at the end of the stream."""
        if not self._config.windows.minutes:
            return
        state = self._warehouse.ledger.state()
        time = self._config.message.time
        # Not the newest seen by the stream: a reprocessed dead letter may be newer.
        newest_us = max((one.bounds_of(time)[1] for one in state.of(self._tables.clean.name)), default=None)
        progress = state.progress.ended(newest_us, self._config.windows.minutes)
        if progress == state.progress:
            return
        with self._warehouse.work(STREAM) as work:
            self._windows(frames, state, progress, [], work)
            commit = self._warehouse.commit("batch", [work], progress=Advance(state.progress, progress))
        self._committed(commit)

    def _run(
        self, frames: Frames, records: DataFrame, span: BatchSpan, state: State, work: Work
    ) -> tuple[Progress, Sequence[DataFile]]:
        tables, message = self._tables, self._config.message
        bronze = self._bronze(frames, records, span, state, work)
        clean: Sequence[DataFile] = ()
        if bronze:
            messages = self._messages(frames, bronze, state, work).persist()
            try:
                clean = frames.write(tables.clean, good(messages), work)
                if _rows(clean) < _rows(bronze):
                    self._rejects(frames, messages, work)
            finally:
                messages.unpersist()
        progress = state.progress.advanced(
            span.united(state.progress.offset),
            max((one.bounds[message.time][1] for one in clean), default=None),
            minutes=self._config.windows.minutes,
            lateness_s=self._config.windows.lateness_s,
        )
        if clean:
            self._late(frames, clean, state, work)
        self._windows(frames, state, progress, clean, work)
        return progress, clean

    def _bronze(
        self, frames: Frames, records: DataFrame, span: BatchSpan, state: State, work: Work
    ) -> list[DataFile]:
        reached = state.progress.offset.positions
        for key in span.overlaps(state.progress.offset):
            here = (f.col("log") == key.log) & (f.col("partition") == key.partition)
            records = records.where(~here | (f.col("offset") >= reached[key]))
        day = f.to_date("timestamp").alias("ingest_date")
        return frames.write(self._tables.bronze, records.select("*", day), work)

    def _messages(self, frames: Frames, bronze: Sequence[DataFile], state: State, work: Work) -> DataFrame:
        tables, message = self._tables, self._config.message
        messages = parse(frames.read(tables.bronze, bronze, work), message)
        within_s = self._config.deduplicate.within_s
        if not within_s:
            return messages
        since_us = min(one.bounds["timestamp"][0] for one in bronze) - within_s * 1_000_000
        before = [
            frames.read(
                table, [one for one in state.of(table.name) if one.overlaps("received_at", since_us, None)]
            )
            .where(f.unix_micros("received_at") >= since_us)
            .select(*message.keys, "received_at")
            for table in (tables.clean, tables.duplicates)
        ]
        # All of them arrived before this batch, so the newest is the nearest.
        latest = (
            before[0]
            .unionByName(before[1])
            .groupBy(*message.keys)
            .agg(f.array(f.max("received_at")).alias(SEEN_AT))
        )
        return without_repetitions(messages, latest, message, within_s)

    def _rejects(self, frames: Frames, messages: DataFrame, work: Work) -> None:
        rejects = rejected(messages)
        for table, chosen in (
            (self._tables.dead_letters, f.col("problem") != DUPLICATE),
            (self._tables.duplicates, f.col("problem") == DUPLICATE),
        ):
            frames.write(table, rejects.where(chosen), work)

    def _late(self, frames: Frames, clean: Sequence[DataFile], state: State, work: Work) -> None:
        """Write the messages that arrived after their windows were closed, which do not count them."""
        time = self._config.message.time
        before_us = state.progress.late_before_us(self._config.windows.minutes)
        files = [one for one in clean if one.overlaps(time, None, before_us)]
        if before_us is None or not files:
            return
        rows = frames.read(self._tables.clean, files, work)
        frames.write(self._tables.late, rows.where(f.unix_micros(time) < before_us), work)

    def _windows(
        self, frames: Frames, state: State, progress: Progress, clean: Sequence[DataFile], work: Work
    ) -> None:
        """Write the windows that `progress` closes and `state` did not."""
        tables, message = self._tables, self._config.message
        parts: list[tuple[int, DataFrame]] = []
        for minutes, until_us in progress.closed_us.items():
            since_us = state.progress.closed_us.get(minutes)
            if since_us == until_us:
                continue
            stored = [
                one for one in state.of(tables.clean.name) if one.overlaps(message.time, since_us, until_us)
            ]
            fresh = [one for one in clean if one.overlaps(message.time, since_us, until_us)]
            if not stored and not fresh:
                continue
            rows = frames.read(tables.clean, stored).unionByName(frames.read(tables.clean, fresh, work))
            parts.append((minutes, rows.where(_between(message.time, since_us, until_us))))
        if parts:
            frames.write(tables.windows, all_averages(parts, message).coalesce(1), work)


def _between(time: str, since_us: int | None, until_us: int) -> Column:
    moment = f.unix_micros(time)
    before = moment < until_us
    return before if since_us is None else (moment >= since_us) & before


def _rows(files: Sequence[DataFile]) -> int:
    return sum(one.rows for one in files)
