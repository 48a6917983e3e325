"""Records parsed again with the current schema: dead letters, or everything that arrived in a range of time. Bronze has
every record unchanged, so all derived data can be derived again.

Several tables change, one commit each, the dead letters last. A reprocess that is killed in between is done again by
the next one, before its own: a letter that is a message or a repetition already is recognised by its offset, and
everything of a range is replaced, however much of it is new."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ..config import PipelineConfig
from ..delta.data_file import RECORD, DataFile
from ..delta.tables import Table, Tables
from ..delta.warehouse import Commit, State, Warehouse, Work
from ..errors import Conflict
from ..failure import spark_errors_in_one_line
from ..steps.clean import SEEN_AT, parse, with_table, without_repetitions
from ..steps.frames import Frames, Step, below, in_silence
from ..steps.last_state import LastState
from ..steps.rewrite import without
from .backfill import Span, backfill

_TRIES = 5
_NO_LIMIT = -(2**62)
"""Application transactions are numbers."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Records to parse again: those that arrived in [since_us, until_us), all of them or the dead letters."""

    since_us: int | None
    until_us: int | None
    everything: bool

    @property
    def marks(self) -> dict[str, int]:
        """Return it as application transactions."""
        since, until = (_NO_LIMIT if one is None else one for one in (self.since_us, self.until_us))
        return {"reprocess/since": since, "reprocess/until": until, "reprocess/all": int(self.everything)}


def is_interrupted(state: State, tables: Tables) -> bool:
    """Return whether a reprocess was killed between two tables, or is between them at the moment."""
    return _interrupted(state, tables) is not None


def _interrupted(state: State, tables: Tables) -> _Choice | None:
    begun = max((state.of(table) for table in tables.all()), key=lambda one: one.mark("reprocess") or 0)
    if (begun.mark("reprocess") or 0) <= (state.of(tables.dead_letters).mark("reprocess") or 0):
        return None
    limits = (begun.mark(f"reprocess/{name}") for name in ("since", "until"))
    since, until = (None if one == _NO_LIMIT else one for one in limits)
    return _Choice(since, until, bool(begun.mark("reprocess/all")))


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
    nothing to do. Call `step` with what begins. Hold `warehouse.role(MAINTENANCE)`. Raises QueryFailed, Conflict."""
    wanted = _Choice(since_us, until_us, everything)
    with spark_errors_in_one_line():
        for last_try in (*[False] * (_TRIES - 1), True):
            try:
                Frames(spark, warehouse).create_tables()
                before = _interrupted(warehouse.state(), warehouse.tables)
                if before is not None:
                    step("completing a reprocess that was interrupted")
                    commit = _Reprocess(config, warehouse, spark, before, step).run()
                    if before == wanted:
                        return commit
                return _Reprocess(config, warehouse, spark, wanted, step).run()
            except Conflict:
                if last_try:
                    raise
                step("another process has replaced files: once more")
    raise AssertionError


class _Reprocess:
    def __init__(
        self, config: PipelineConfig, warehouse: Warehouse, spark: SparkSession, choice: _Choice, step: Step
    ) -> None:
        self._config = config
        self._warehouse = warehouse
        self._step = step
        self._spark = spark
        self._tables: Tables = warehouse.tables
        self._last = LastState(warehouse, config.message)
        self._choice = choice
        # One state for all: batches after it are parsed with the current schema.
        self._state = warehouse.state()

    def run(self) -> Commit | None:
        tables, everything = self._tables, self._choice.everything
        source = tables.bronze if everything else tables.dead_letters
        parsed = self._files(source)
        if not parsed:
            return None
        again = f"reprocessing {sum(one.rows for one in parsed):,} records"
        frames = Frames(self._spark, self._warehouse, lambda table: self._step(f"{again}: {table}"))
        replaced = (tables.clean, tables.dead_letters, tables.duplicates, tables.late)
        with self._warehouse.work() as work:
            removed: dict[str, list[DataFile]] = {}
            for table in replaced if everything else (tables.dead_letters,):
                removed[table.name] = without(
                    frames, table, self._files(table), self._chosen("received_at"), work
                )
            kept = {table.name: len(work.of(table)) for table in replaced}

            def written(table: Table) -> list[DataFile]:
                return work.of(table)[kept[table.name] :]

            moved = self._messages(frames, parsed, work)
            clean = written(tables.clean)
            fresh = frames.read(tables.clean, clean)
            if moved is not None:
                fresh = fresh.unionByName(moved)
            if self._config.windows.minutes and (clean or moved is not None):
                self._write_late(frames, fresh, work)
            if not everything and not clean and not written(tables.duplicates) and moved is None:
                return None
            commit = self._commit(frames, fresh if clean or moved is not None else None, removed, work)
        # Windows that have lost messages are recomputed as well.
        self._refresh([*self._files(tables.clean), *clean] if everything else ())
        return commit

    def _commit(
        self, frames: Frames, fresh: DataFrame | None, removed: dict[str, list[DataFile]], work: Work
    ) -> Commit:
        tables, state = self._tables, self._state
        number = max(state.of(table).mark("reprocess") or 0 for table in tables.all()) + 1
        marks = {"reprocess": number, **self._choice.marks}
        if fresh is not None:
            self._last.write(frames, state.of(tables.last), fresh, work)
        for table in (tables.clean, tables.duplicates, tables.late):
            work.commit(state.of(table), marks, removed.get(table.name, ()))
        if fresh is not None:
            self._last.commit(frames, state.of(tables.last), fresh, work, marks)
        letters = state.of(tables.dead_letters)
        work.commit(letters, marks, removed[tables.dead_letters.name], empty=True)
        return Commit("reprocess", state.number, tuple(work.added), work.removed)

    def _refresh(self, clean: Sequence[DataFile]) -> None:
        bounds = [one.bounds_of(self._config.message.time) for one in clean]
        span = Span(min(low for low, _ in bounds), max(high for _, high in bounds) + 1) if bounds else None
        backfill(self._config, self._warehouse, self._spark, span, step=self._step)

    def _messages(self, frames: Frames, parsed: Sequence[DataFile], work: Work) -> DataFrame | None:
        """Write the messages, letters and repetitions. Return the messages that an interrupted reprocess has added."""
        tables = self._tables
        moved: DataFrame | None = None
        if self._choice.everything:
            records = frames.read(tables.bronze, parsed).where(self._chosen("timestamp"))
        else:
            letters = frames.read(tables.dead_letters, parsed).where(self._chosen("received_at"))
            records = letters.select(*RECORD, f.col("received_at").alias("timestamp"), "topic", "value")
            low, high = self._reach_of(parsed)
            named = letters.select(*RECORD)
            there = [
                frames.read(table, self._state.of(table).files("received_at", low, high)).join(
                    named, list(RECORD), "left_semi"
                )
                for table in (tables.clean, tables.duplicates)
            ]
            if not (there[0].isEmpty() and there[1].isEmpty()):
                moved = there[0]
                both = there[0].select(*RECORD).unionByName(there[1].select(*RECORD))
                records = records.join(both, list(RECORD), "left_anti")
        messages = self._judged(frames, records, parsed)
        into = (tables.clean, tables.dead_letters, tables.duplicates)
        frames.write_each(into, with_table(messages, tables), work)
        return moved

    def _write_late(self, frames: Frames, fresh: DataFrame, work: Work) -> None:
        late = self._tables.late
        if not self._choice.everything:
            known = frames.read(late, self._state.of(late).files()).select(*RECORD)
            fresh = fresh.join(known, list(RECORD), "left_anti")
        frames.write(late, fresh, work)

    def _judged(self, frames: Frames, records: DataFrame, parsed: Sequence[DataFile]) -> DataFrame:
        message, within_s = self._config.message, self._config.deduplicate.within_s
        messages = parse(records, message)
        if not within_s:
            return messages
        since_us, until_us = self._reach(parsed)
        moment = f.unix_micros("received_at")
        known = [
            frames.read(table, self._state.of(table).files("received_at", since_us, until_us))
            .where((moment >= since_us) & (moment < until_us))
            .select(*message.keys, "received_at")
            for table in (self._tables.clean, self._tables.duplicates)
        ]
        seen = known[0].unionByName(known[1])
        arrivals = seen.groupBy(*message.keys).agg(f.collect_list("received_at").alias(SEEN_AT))
        return without_repetitions(messages, arrivals, message, within_s)

    def _reach(self, parsed: Sequence[DataFile]) -> tuple[int, int]:
        """Return the range of arrival times of messages that those in question may repeat."""
        within_us = self._config.deduplicate.within_s * 1_000_000
        if self._choice.everything:
            # Messages within the range are checked again, so only those before it are known.
            start = self._choice.since_us or 0
            return start - within_us, start
        low, high = self._reach_of(parsed)
        return low - within_us, high + within_us

    def _reach_of(self, letters: Sequence[DataFile]) -> tuple[int, int]:
        bounds = [one.bounds["received_at"] for one in letters]
        return min(low for low, _ in bounds), max(high for _, high in bounds) + 1

    def _files(self, table: Table) -> list[DataFile]:
        column = "timestamp" if table is self._tables.bronze else "received_at"
        return self._state.of(table).files(column, self._choice.since_us, self._choice.until_us)

    def _chosen(self, column: str) -> Column:
        # A batch that is being committed may be in some tables and not in others.
        chosen = below(self._state.progress.offset)
        moment = f.unix_micros(column)
        if self._choice.since_us is not None:
            chosen = chosen & (moment >= self._choice.since_us)
        if self._choice.until_us is not None:
            chosen = chosen & (moment < self._choice.until_us)
        return chosen
