"""One batch of the stream through all tables. Everything is computed and written first, then committed table by table,
the progress last.

Spark keeps no state between batches; the tables are the state. A batch is a function of its range of offsets and of the
rows below that range. When its process is killed between two commits, bronze has the records of the range, and
`finish` does the rest: a table that has the batch is left as it is, and decides where its records belong; the others
are computed as they would have been."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_timestone.offsets import LogPartition, SourceOffset

from ..config import PipelineConfig
from ..delta.data_file import RECORD, DataFile
from ..delta.progress import Progress
from ..delta.tables import KEPT, Table, Tables
from ..delta.warehouse import Commit, State, Warehouse, Work
from ..errors import Busy, Conflict
from ..steps.clean import DUPLICATE, parse, with_table
from ..steps.frames import LEAST_RECORDS, Frames, Step, below, in_silence, of_partition
from ..steps.last_state import LastState
from ..steps.newest import newest_of_files
from ..steps.repetitions import KEY, MOMENT, REACHED, Search, keyed, repeated
from ..steps.windows import all_averages
from .checkpoint import batch_span

_KEYS = 1_000_000
"""Sent to all tasks at the same time, some 25 bytes each."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Input of a batch."""

    number: int
    state: State
    """Tables below its range; of one that was interrupted, those that have it have it in full."""
    end: SourceOffset
    records: DataFrame | None = None
    """Its records; None for one that was interrupted, of which bronze has them, or that only closes windows."""

    def done(self, table: Table) -> bool:
        return self.state.of(table).number >= self.number

    @property
    def below(self) -> Column:
        """Return the condition for rows below its range."""
        return below(self.state.progress.offset)

    @property
    def marks(self) -> dict[str, int]:
        """Return the application transactions of its commits."""
        return {"": self.number, **{str(key): at for key, at in self.end.positions.items()}}


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
        self._tables: Tables = warehouse.tables
        self._last = LastState(warehouse, config.message)

    def __call__(self, records: DataFrame, number: int) -> None:
        """Process a batch. Raises TablesBehind, Busy, and the errors of Spark."""
        state = self.finish(records.sparkSession)
        span = batch_span(self._warehouse.checkpoint, number)
        reached = state.progress.offset
        span.check_follows(reached, fail_on_data_loss=self._config.source.fail_on_data_loss)
        if span.done(reached):
            return
        count = span.count_after(reached)
        frames = self._frames(records.sparkSession, state.number + 1, count)
        # A log of small segments has a task for each, and a task writes a file of each table.
        records = records.coalesce(frames.tasks_for(count, of=LEAST_RECORDS))
        for key in span.overlaps(reached):
            records = records.where(~of_partition(key) | (f.col("offset") >= reached.positions[key]))
        with self._warehouse.work(state.number + 1) as work:
            self._run(frames, _Batch(state.number + 1, state, span.united(reached), records), work)

    def finish(self, spark: SparkSession) -> State:
        """Commit the rest of a batch that was interrupted between two commits. Return the state after it."""
        state = self._warehouse.state()
        number = state.newest
        if number == state.number:
            return state
        batch = _Batch(number, state, state.progress.offset)
        frames = self._frames(spark, number, None)
        if batch.done(self._tables.bronze):
            batch = _Batch(number, state, self._interrupted_end(frames, batch))
        with self._warehouse.work(number) as work:
            self._run(frames, batch, work)
        return self._warehouse.state()

    def close_windows(self, spark: SparkSession) -> None:
        """Close every window that has a message, as at the end of the stream."""
        if not self._config.windows.minutes:
            return
        state = self.finish(spark)
        time = self._config.message.time
        # Not the newest seen by the stream: a reprocessed dead letter may be newer.
        clean = state.of(self._tables.clean).files()
        newest_us = max((one.bounds_of(time)[1] for one in clean), default=None)
        progress = state.progress.ended(newest_us, self._config.windows.minutes)
        if progress == state.progress:
            return
        batch = _Batch(state.number + 1, state, progress.offset)
        with self._warehouse.work(batch.number) as work:
            self._windows(Frames(spark, self._warehouse), batch, progress, (), work)
            self._commit(Frames(spark, self._warehouse), batch, progress, None, work)

    def _frames(self, spark: SparkSession, number: int, count: int | None) -> Frames:
        size = "that was interrupted" if count is None else f"of {count:,} records"
        return Frames(spark, self._warehouse, lambda table: self._step(f"batch {number} {size}: {table}"))

    def _run(self, frames: Frames, batch: _Batch, work: Work) -> None:
        tables, message, state = self._tables, self._config.message, batch.state
        self._messages(frames, batch, work)
        fresh = work.of(tables.clean)
        newest_us: int | None
        if batch.done(tables.clean):
            states = clean = frames.read(tables.clean, state.of(tables.clean).files()).where(~batch.below)
            newest_us = clean.agg(f.max(f.unix_micros(message.time))).collect()[0][0]
        else:
            clean = frames.read(tables.clean, fresh)
            states = frames.in_tasks(newest_of_files(message), tables.clean, fresh)
            newest_us = max((one.bounds[message.time][1] for one in fresh), default=None)
        progress = state.progress.advanced(
            batch.end,
            newest_us,
            minutes=self._config.windows.minutes,
            lateness_s=self._config.windows.lateness_s,
        )
        if batch.done(tables.windows):
            progress = self._interrupted_windows(batch, progress)
        else:
            self._windows(frames, batch, progress, fresh, work)
        empty = newest_us is None
        if not empty and not batch.done(tables.late):
            self._late(frames, batch, clean, fresh, work)
        self._commit(frames, batch, progress, None if empty else states, work)

    def _commit(
        self, frames: Frames, batch: _Batch, progress: Progress, states: DataFrame | None, work: Work
    ) -> None:
        """Commit the files of `work` table by table; `states` are messages of the batch, of each device the newest."""
        tables, state = self._tables, batch.state
        closed = {f"closed/{minutes}": at for minutes, at in progress.closed_us.items()}
        newest = {} if progress.newest_us is None else {"newest": progress.newest_us}
        if states is not None and not batch.done(tables.last):
            self._last.write(frames, state.of(tables.last), states, work)
        try:
            for table in tables.all():
                if table is tables.last:
                    if states is not None and not batch.done(table):
                        self._last.commit(frames, state.of(table), states, work, batch.marks)
                elif table is tables.windows:
                    work.commit(state.of(table), {**batch.marks, **closed, **newest})
                elif table is tables.progress:
                    work.commit_progress(state, batch.number, progress, batch.marks)
                else:
                    work.commit(state.of(table), batch.marks)
        except Conflict as error:
            raise Busy(
                f"another process has committed batch {batch.number} to the tables in {self._warehouse.root.uri}:"
                f" {error}"
            ) from error
        self._committed(Commit("batch", batch.number, tuple(work.added), work.removed))

    def _messages(self, frames: Frames, batch: _Batch, work: Work) -> None:
        """Write the records of the batch, what they are, and at last which of them repeat another."""
        tables, message = self._tables, self._config.message
        into = (tables.bronze, tables.clean, tables.dead_letters, tables.duplicates)
        if batch.records is not None:
            messages = parse(batch.records, message, keep=KEPT)
            frames.write_each(into[:3], with_table(messages, tables), work)
        elif batch.done(tables.bronze) and (left := [one for one in into if not batch.done(one)]):
            frames.write_each(left, with_table(self._undecided(frames, batch), tables), work)
        if work.of(tables.clean) and self._config.deduplicate.within_s:
            self._move_repetitions(frames, batch, work)

    def _move_repetitions(self, frames: Frames, batch: _Batch, work: Work) -> None:
        """Take the messages that repeat another out of the new files of clean, and write them as duplicates."""
        tables, message, state = self._tables, self._config.message, batch.state
        frames.begin(tables.duplicates.name)
        fresh = work.of(tables.clean)
        columns = dict.fromkeys((*RECORD, "received_at", *message.keys, message.time))
        rows = frames.fetch(tables.clean, fresh, *columns)
        rows = rows.filter(pc.is_valid(rows[message.sequence]))
        keys = keyed(rows, message.keys, *RECORD)
        if not keys.num_rows:
            return
        found = repeated(keys, self._seen(frames, batch, keys), self._config.deduplicate.within_s * 1_000_000)
        if not len(found):
            return
        since_us = min(one.bounds["received_at"][0] for one in fresh)
        bronze = work.of(tables.bronze) or state.of(tables.bronze).files("timestamp", since_us)
        frames.move(
            rows.take(found).drop_columns(["received_at"]),
            (tables.clean, fresh),
            tables.duplicates,
            (tables.bronze, bronze),
            work,
            {"problem": DUPLICATE},
        )
        work.discard(fresh)

    def _seen(self, frames: Frames, batch: _Batch, keys: pa.Table) -> pa.Table:
        """Return those messages before the batch that have one of `keys`, and arrived late enough to be repeated."""
        tables, message = self._tables, self._config.message
        device, sequence = (message.fields[name] for name in message.keys)
        found = f"{KEY[0]} {device}, {KEY[1]} {sequence}, {MOMENT} bigint"
        first_us = pc.min(keys[MOMENT]).as_py()
        since_us = first_us - self._config.deduplicate.within_s * 1_000_000
        reached = None
        if batch.records is None:  # else nothing of it is in a table
            positions = batch.state.progress.offset.positions
            reached = pa.Table.from_pylist(
                [dict(zip(RECORD, (*key, at), strict=True)) for key, at in positions.items()], REACHED
            )
        sources = [
            (table, batch.state.of(table).files("received_at", since_us))
            for table in (tables.clean, tables.duplicates)
        ]
        parts = []
        for start in range(0, keys.num_rows, _KEYS):
            search = Search(message.keys, keys.slice(start, _KEYS).select(KEY), since_us, first_us, reached)
            parts.append(frames.find(search.of, sources, *search.columns, found=found))
        return pa.concat_tables(parts)

    def _undecided(self, frames: Frames, batch: _Batch) -> DataFrame:
        """Return the messages of an interrupted batch that are in no table yet. The settings, or a message that was
        reprocessed since, may lead to another decision than before; that of a table that has the batch counts."""
        tables, state = self._tables, batch.state
        first = frames.read(tables.bronze, state.of(tables.bronze).files()).where(~batch.below)
        since_us = first.agg(f.min(f.unix_micros("timestamp"))).collect()[0][0] or 0
        messages = parse(first, self._config.message)
        decided = [
            frames.read(table, state.of(table).files("received_at", since_us))
            .where(~batch.below)
            .select(*RECORD)
            for table in (tables.clean, tables.dead_letters, tables.duplicates)
            if batch.done(table)
        ]
        if decided:
            messages = messages.join(reduce(DataFrame.unionByName, decided), list(RECORD), "left_anti")
        if batch.done(tables.clean):
            messages = messages.withColumn("problem", f.coalesce("problem", f.lit(DUPLICATE)))
        return messages

    def _interrupted_end(self, frames: Frames, batch: _Batch) -> SourceOffset:
        """Return the end of the range of an interrupted batch: of each partition of which bronze has records."""
        bronze = batch.state.of(self._tables.bronze)
        rows = frames.read(self._tables.bronze, bronze.files()).where(~batch.below)
        found = [LogPartition(*row) for row in rows.select("log", "partition").distinct().collect()]
        before = batch.state.progress.offset
        return SourceOffset(
            {**before.positions, **{key: bronze.mark(str(key)) or 0 for key in found}}, before.origins
        )

    def _interrupted_windows(self, batch: _Batch, progress: Progress) -> Progress:
        """Return the progress with the windows that an interrupted batch has closed."""
        windows = batch.state.of(self._tables.windows)
        lengths = {*self._config.windows.minutes, *batch.state.progress.closed_us}
        closed = {minutes: at for minutes in lengths if (at := windows.mark(f"closed/{minutes}")) is not None}
        return Progress(progress.offset, windows.mark("newest"), closed)

    def _late(
        self, frames: Frames, batch: _Batch, clean: DataFrame, fresh: Sequence[DataFile], work: Work
    ) -> None:
        """Write the messages that arrived after their windows were closed, which do not count them."""
        time = self._config.message.time
        before_us = batch.state.progress.late_before_us(self._config.windows.minutes)
        if before_us is None:
            return
        if batch.done(self._tables.clean) or any(one.overlaps(time, None, before_us) for one in fresh):
            frames.write(self._tables.late, clean.where(f.unix_micros(time) < before_us), work)

    def _windows(
        self, frames: Frames, batch: _Batch, progress: Progress, clean: Sequence[DataFile], work: Work
    ) -> None:
        """Write the windows that `progress` closes and the state did not; `clean` are uncommitted files."""
        tables, message, state = self._tables, self._config.message, batch.state
        parts: list[tuple[int, DataFrame]] = []
        count = 0
        for minutes, until_us in progress.closed_us.items():
            since_us = state.progress.closed_us.get(minutes)
            if since_us == until_us:
                continue
            stored = state.of(tables.clean).files(message.time, since_us, until_us)
            fresh = [one for one in clean if one.overlaps(message.time, since_us, until_us)]
            if stored or fresh:
                rows = frames.read(tables.clean, [*stored, *fresh])
                parts.append((minutes, rows.where(_between(message.time, since_us, until_us))))
                count += sum(one.rows for one in (*stored, *fresh))
        if parts:
            rows = all_averages(parts, message).coalesce(frames.tasks_for(count))
            frames.write(tables.windows, rows, work)


def _between(time: str, since_us: int | None, until_us: int) -> Column:
    moment = f.unix_micros(time)
    before = moment < until_us
    return before if since_us is None else (moment >= since_us) & before
