"""A store, the pipeline over it and its tables, with the steps that the tests of the pipeline share."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import timestone
from timestone import LogConfig
from timestone_pipeline import Commit, PipelineConfig, SourceConfig, TablesConfig, open_tables, run
from timestone_pipeline.steps.frames import Step, in_silence

LOG = "mqtt"
START = datetime(2026, 1, 1, tzinfo=UTC)


def message(device: str, seq: int, *, at_s: float | None = None, **more: Any) -> bytes:
    """Return a message of a device; its time is `at_s` seconds after START, by default a second a message."""
    at = START + timedelta(seconds=seq if at_s is None else at_s)
    fields = {
        "device": device,
        "seq": seq,
        "ts": at.isoformat(),
        "temperature": 20.0 + seq % 7,
        "humidity": 50.0,
    }
    return json.dumps({**fields, **more}).encode()


class Plant:
    """One store and one pipeline in a folder."""

    def __init__(
        self, spark: SparkSession | None, root: Path, *, log: LogConfig | None = None, **sections: Any
    ) -> None:
        """Create it without a session, for a test that leaves running to a command."""
        self._spark = spark
        self.data, self.tables = root / "data", root / "tables"
        self.config = PipelineConfig(
            **{
                "source": SourceConfig(path=str(self.data), logs=(LOG,)),
                "tables": TablesConfig(path=str(self.tables)),
                **sections,
            }
        )
        with timestone.open(self.data, log=log or LogConfig()) as store:
            store.log(LOG)

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def changed(self, **sections: Any) -> None:
        """Use another configuration from here on."""
        self.config = replace(self.config, **sections)

    def send(self, *payloads: bytes) -> None:
        """Append records, as a server does."""
        with timestone.open(self.data) as store:
            store.log(LOG).append_many(list(payloads), topic="site/1")

    def run(self, *, final: bool = False, step: Step = in_silence) -> list[Commit]:
        """Process all new records into the tables; return the commits."""
        commits: list[Commit] = []
        run(self.config, self.spark, once=True, final=final, committed=commits.append, step=step)
        return commits

    def table(self, name: str) -> pa.Table:
        """Read a table as any reader of Delta does, without knowledge of the pipeline."""
        return self.delta(name).to_pyarrow_table()

    def delta(self, name: str) -> DeltaTable:
        """Return a table as delta-rs knows it."""
        warehouse = open_tables(self.config)
        return DeltaTable(f"{warehouse.root.uri}/{name}", storage_options=warehouse.root.options())

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return some columns of a table, sorted."""
        table = self.table(name)
        return (
            sorted(zip(*(table[column].to_pylist() for column in columns), strict=True))
            if table.num_rows
            else []
        )

    def files(self, name: str) -> list[Path]:
        """Return the current files of a table in a folder."""
        return sorted(Path(uri) for uri in self.delta(name).file_uris())

    def counts(self) -> dict[str, int]:
        """Return the rows of every table that has some."""
        state = open_tables(self.config).state()
        counts = {name: one.rows for name, one in state.tables.items() if name != "progress"}
        return {name: count for name, count in counts.items() if count}

    def check(self) -> None:
        """Check the invariants of every commit."""
        bronze = self.rows("bronze", "log", "partition", "offset")
        assert len(set(bronze)) == len(bronze)
        parts = [
            self.rows(name, "log", "partition", "offset") for name in ("clean", "dead_letters", "duplicates")
        ]
        assert sorted(row for part in parts for row in part) == bronze

    def check_published(self, published: Sequence[bytes]) -> None:
        """Check that the tables equal the published messages, each once, after all windows are closed and late messages
        are counted; broken messages (`StubbornDevice`) are in dead letters."""
        self.check()
        with timestone.view(self.data) as store:
            end = store.log(LOG).end_offset
        assert self.rows("bronze", "offset") == [(offset,) for offset in range(end)]
        bronze = self.table("bronze")["value"].to_pylist()
        assert set(bronze) == set(published), "acknowledged, and nothing else"

        good = [one for one in published if not one.startswith(b"broken") and b'"2199-' not in one]
        identity = sorted((one["device"], one["seq"]) for one in map(json.loads, good))
        assert self.rows("clean", "device", "seq") == identity
        letters = {value for (value,) in self.rows("dead_letters", "value")}
        assert letters == set(published) - set(good)
        assert self.rows("late", "offset") == []
        assert self.windows() == self.averages(good)
        newest = {device: seq for device, seq in identity}
        assert self.rows("last", "device", "seq") == sorted(newest.items())

        # The number of rows in the Delta log is that in the files.
        assert self.counts()["clean"] == len(identity)

    def averages(
        self, payloads: Iterable[bytes]
    ) -> dict[tuple[int, str, datetime], tuple[int, float, float]]:
        """Compute the expected windows in plain Python: (minutes, device, start) -> messages, mean and max."""
        groups: dict[tuple[int, str, datetime], list[float]] = {}
        for payload in payloads:
            one = json.loads(payload)
            at = datetime.fromisoformat(one["ts"])
            for minutes in self.config.windows.minutes:
                start = at - timedelta(seconds=at.timestamp() % (60 * minutes))
                groups.setdefault((minutes, one["device"], start), []).append(one["temperature"])
        return {
            key: (len(values), round(sum(values) / len(values), 9), max(values))
            for key, values in groups.items()
        }

    def windows(self) -> dict[tuple[int, str, datetime], tuple[int, float, float]]:
        """Return the actual windows in the same form; every window once."""
        rows = self.table("windows").to_pylist()
        found = {
            (int(row["minutes"]), row["device"], row["start"]): (
                row["messages"],
                round(row["temperature_mean"], 9),
                row["temperature_max"],
            )
            for row in rows
        }
        assert len(found) == len(rows)
        return found
