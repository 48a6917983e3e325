"""Records parsed again with the current schema: dead letters, or everything that arrived in a range of time. Bronze has
every record unchanged, so all derived data can be derived again."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from .backfill import Span, backfill
from .clean import DUPLICATE, SEEN_AT, good, parse, rejected, without_repetitions
from .config import PipelineConfig
from .data_file import DataFile
from .failure import spark_errors_in_one_line
from .frames import Frames, Step, in_silence
from .last_state import LastState
from .ledger import Commit, FileKey, State
from .rewrite import without
from .tables import Table, Tables, tables_of
from .warehouse import MAINTENANCE, Warehouse

_RECORD = ("log", "partition", "offset")


def reprocess(
    config: PipelineConfig,
    warehouse: Warehouse,
    spark: SparkSession,
    *,
    since_us: int | None = None,
    until_us: int | None = None,
    everything: bool = False,
    step: Step = in_silence,
) -> Commit | None:
    """Parse again the dead letters that arrived in [since_us, until_us) (µs); with `everything`, all records. The
    resulting messages count as late, and a backfill adds them to their windows at once. Return None if there was
    nothing to do. Call `step` with what begins. Hold `warehouse.role(MAINTENANCE)`. Raises QueryFailed."""
    with spark_errors_in_one_line():
        return _Reprocess(config, warehouse, spark, since_us, until_us, step).run(everything)


class _Reprocess:
    def __init__(
        self,
        config: PipelineConfig,
        warehouse: Warehouse,
        spark: SparkSession,
        since_us: int | None,
        until_us: int | None,
        step: Step,
    ) -> None:
        self._config = config
        self._warehouse = warehouse
        self._step = step
        self._frames = Frames(spark, warehouse)
        self._tables: Tables = tables_of(config)
        self._last = LastState(warehouse, self._tables, config.message, MAINTENANCE)
        self._since_us = since_us
        self._until_us = until_us

    def run(self, everything: bool) -> Commit | None:
        # One state for all: later commits of the stream are parsed with the current schema.
        state = self._warehouse.ledger.state()
        tables = self._tables
        derived = (tables.clean, tables.dead_letters, tables.duplicates)
        replaced = (*derived, tables.late) if everything else (tables.dead_letters,)
        records = self._records(state) if everything else self._dead_letters(state)
        if records is None:
            return None
        parsed = self._files(state, tables.bronze if everything else tables.dead_letters)
        again = f"reprocessing {sum(one.rows for one in parsed):,} records"
        self._frames = Frames(
            self._frames.spark, self._warehouse, lambda table: self._step(f"{again}: {table}")
        )
        messages = self._messages(records, state, everything)
        with self._warehouse.work(MAINTENANCE) as work:
            removed: list[FileKey] = []
            for table in replaced:
                removed += without(
                    self._frames, table, self._files(state, table), self._arrived("received_at"), work
                )
            kept = len(work.files)
            clean = self._frames.write(tables.clean, good(messages), work)
            rejects = rejected(messages)
            self._frames.write(tables.dead_letters, rejects.where(f.col("problem") != DUPLICATE), work)
            self._frames.write(tables.duplicates, rejects.where(f.col("problem") == DUPLICATE), work)
            if clean and self._config.windows.minutes:
                self._frames.write(tables.late, self._frames.read(tables.clean, clean, work), work)
            as_dead_as_before = all(one.table == tables.dead_letters.name for one in work.files[kept:])
            if as_dead_as_before and not everything:
                return None
            commit = self._last.commit(self._frames, "reprocess", work, clean, removed=removed)
        if everything:
            # Windows that have lost messages are recomputed as well.
            before = self._files(state, tables.clean)
            self._refresh([*before, *clean])
        else:
            self._refresh(())
        return commit

    def _refresh(self, clean: Sequence[DataFile]) -> None:
        bounds = [one.bounds_of(self._config.message.time) for one in clean]
        span = Span(min(low for low, _ in bounds), max(high for _, high in bounds) + 1) if bounds else None
        backfill(self._config, self._warehouse, self._frames.spark, span, step=self._step)

    def _records(self, state: State) -> DataFrame | None:
        files = self._files(state, self._tables.bronze)
        if not files:
            return None
        return self._frames.read(self._tables.bronze, files).where(self._arrived("timestamp"))

    def _dead_letters(self, state: State) -> DataFrame | None:
        files = self._files(state, self._tables.dead_letters)
        if not files:
            return None
        letters = self._frames.read(self._tables.dead_letters, files).where(self._arrived("received_at"))
        return letters.select(*_RECORD, f.col("received_at").alias("timestamp"), "topic", "value")

    def _messages(self, records: DataFrame, state: State, everything: bool) -> DataFrame:
        message, within_s = self._config.message, self._config.deduplicate.within_s
        messages = parse(records, message)
        if not within_s:
            return messages
        since_us, until_us = self._reach(state, everything)
        moment = f.unix_micros("received_at")
        known = [
            self._frames.read(
                table,
                [one for one in state.of(table.name) if one.overlaps("received_at", since_us, until_us)],
            )
            .where((moment >= since_us) & (moment < until_us))
            .select(*message.keys, "received_at")
            for table in (self._tables.clean, self._tables.duplicates)
        ]
        seen = known[0].unionByName(known[1])
        arrivals = seen.groupBy(*message.keys).agg(f.collect_list("received_at").alias(SEEN_AT))
        return without_repetitions(messages, arrivals, message, within_s)

    def _reach(self, state: State, everything: bool) -> tuple[int, int]:
        """Return the range of arrival times of messages that those in question may repeat."""
        within_us = self._config.deduplicate.within_s * 1_000_000
        if everything:
            # Messages within the range are checked again, so only those before it are known.
            start = self._since_us or 0
            return start - within_us, start
        bounds = [one.bounds["received_at"] for one in self._files(state, self._tables.dead_letters)]
        return min(low for low, _ in bounds) - within_us, max(high for _, high in bounds) + within_us + 1

    def _files(self, state: State, table: Table) -> list[DataFile]:
        column = "timestamp" if table is self._tables.bronze else "received_at"
        return [one for one in state.of(table.name) if one.overlaps(column, self._since_us, self._until_us)]

    def _arrived(self, column: str) -> Column:
        moment = f.unix_micros(column)
        chosen = f.lit(True)
        if self._since_us is not None:
            chosen = chosen & (moment >= self._since_us)
        if self._until_us is not None:
            chosen = chosen & (moment < self._until_us)
        return chosen
