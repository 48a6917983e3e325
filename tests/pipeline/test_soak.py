"""The pipeline for an hour, over MQTT, with compaction beside it: its resources do not grow with time.

Server, pipeline and compaction are the commands of a user, each a separate process. Memory of the devices and the test
is not counted, nor that of a compaction, which ends each time (`test_maintenance` checks that it does not grow with the
tables). TIMESTONE_PIPELINE_SOAK_S=3600 for the hour; the samples are printed.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.java_heap import live_bytes
from tests.support.plant import LOG, Plant
from tests.support.ports import reserved_port
from tests.support.processes import descendants
from tests.support.seeds import rounds
from tests.support.supervised import Supervised, listening
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, Warehouse, open_tables, status

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS = rounds(0, "TIMESTONE_PIPELINE_SOAK_S")
LEAST_SAMPLES = 4
DEVICES = 4
PAUSE_S = 0.2
"""Between two messages of a device. The published messages are kept for the comparison at the end."""
STEP_S = 30
"""Telemetry time between two messages of a device: windows close all the time."""
KEEP_S = 3600
"""Whole hours, and longer than a batch takes: below that a compaction would delete files that it still reads."""
BATCHES_KEPT = 4
"""Batches whose metadata Spark keeps in its checkpoint; a hundred by default, and the checkpoint grows up to that."""
SETTINGS = f"""
[source]
path = "data"
logs = ["{LOG}"]
[tables]
keep_replaced_s = {KEEP_S}
[spark]
master = "local[2,4]"
trigger_s = 0
[spark.conf]
"spark.sql.shuffle.partitions" = "2"
"spark.sql.streaming.minBatchesToRetain" = "{BATCHES_KEPT}"
"spark.sql.streaming.pollingDelay" = "10ms"
"""


class Held(NamedTuple):
    """Resources at one moment, after a compaction."""

    heap_mib: int
    """Java's heap after a collection."""
    java_descriptors: int
    pythons: int
    """Python processes under Java: the one that plans for the source, and workers."""
    python_mib: int
    """The largest of them, without its mapped files; the same below."""
    driver_mib: int
    """`timestone pipeline run`, without Java."""
    driver_descriptors: int
    server_mib: int
    server_descriptors: int
    checkpoint_files: int
    commits_to_read: int
    """Of the table with the most, since its last checkpoint: what a reader opens besides that."""
    table_files: int
    """Files of the current tables; without those that were replaced less than KEEP_S ago."""
    lag: int


ROOM = Held(
    heap_mib=60, java_descriptors=40, pythons=2, python_mib=30, driver_mib=30, driver_descriptors=20,
    server_mib=30, server_descriptors=10, checkpoint_files=12, commits_to_read=20, table_files=12, lag=1000,
)  # fmt: skip
"""By how much the second half of a run may be above the first. An hour has some two thousand batches: a growth of a
file, a descriptor or thirty kilobytes a batch is beyond that."""


def resident_mib(pid: int) -> int:
    try:
        said = Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()
    except OSError:
        return 0  # it has ended since
    return int(said[0]) >> 10 if said else 0


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def commits_to_read(table: Path) -> int:
    """Return the commits of a table since the last checkpoint of its Delta log."""
    log = table / "_delta_log"
    checkpoint = max((path.name[:20] for path in log.glob("*.checkpoint.parquet")), default="")
    return sum(path.stem > checkpoint for path in log.glob("*.json"))


def held(driver: int, server: int, config: PipelineConfig, warehouse: Warehouse) -> Held:
    # The first: a process that it is just starting has its name for a moment.
    java = next(pid for pid, words in descendants(driver).items() if "SparkSubmit" in words)
    heap_bytes, tables = live_bytes(java), warehouse.state().tables
    pythons = [pid for pid, words in descendants(java).items() if "python" in words]
    return Held(
        heap_mib=heap_bytes >> 20,
        java_descriptors=descriptors(java),
        pythons=len(pythons),
        python_mib=max(map(resident_mib, pythons), default=0),
        driver_mib=resident_mib(driver),
        driver_descriptors=descriptors(driver),
        server_mib=resident_mib(server),
        server_descriptors=descriptors(server),
        checkpoint_files=len(files(warehouse.checkpoint)),
        commits_to_read=max(commits_to_read(Path(warehouse.root.uri) / name) for name in tables),
        table_files=sum(one.file_count for one in tables.values()),
        lag=status(config, warehouse).logs[0].lag or 0,
    )


def check_files(warehouse: Warehouse, swept_s: float) -> None:
    """Check that the folder has only the files of the tables, and those that are younger than an hour."""
    for name, snapshot in warehouse.state().tables.items():
        folder = Path(warehouse.root.uri) / name
        current = {one.path for one in snapshot.files()}
        for path in files(folder):
            if "_delta_log" not in path.parts and str(path.relative_to(folder)) not in current:
                assert path.stat().st_mtime >= swept_s - KEEP_S, path


def wait(done: Callable[[], object], driver: Supervised | None = None, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert (driver is None or driver.code is None) and time.monotonic() < deadline
        time.sleep(0.05)


def told(samples: Sequence[Held], commits: int) -> None:
    step = -(-len(samples) // 20)
    print(f"{len(samples)} samples, {commits} commits")
    for place, name in enumerate(Held._fields):
        print(f"{name:18}", *[one[place] for one in samples[::step]])


def flat(samples: Sequence[Held]) -> None:
    """Check that a figure is flat: the first half fills caches and pools; a leak still grows in the second."""
    early, late = samples[: len(samples) // 2], samples[len(samples) // 2 :]
    for place, name in enumerate(Held._fields):
        before, after = (statistics.median(one[place] for one in half) for half in (early, late))
        assert after <= before + ROOM[place], (name, before, after, samples)


@pytest.mark.timeout(SECONDS + 1800)
def test_resources_of_a_running_pipeline_do_not_grow(tmp_path: Path) -> None:
    plant = Plant(
        None,
        tmp_path,
        source=SourceConfig(path=str(tmp_path / "data"), logs=(LOG,)),
        tables=TablesConfig(path=str(tmp_path / "tables"), keep_replaced_s=KEEP_S),
    )
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    config, warehouse = plant.config, open_tables(plant.config)

    with ExitStack() as leaving:
        address = ("127.0.0.1", leaving.enter_context(reserved_port()))
        words = ("serve", "--data", "data", "--mqtt", f"127.0.0.1:{address[1]}")
        server = Supervised(tmp_path, "server", *words)
        leaving.callback(server.end, signal.SIGKILL)
        wait(lambda: listening(address))
        devices = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.device_program", address[0], str(address[1])),
                *(str(DEVICES), str(STEP_S), str(PAUSE_S), str(tmp_path / "published")),
            ],
            stdin=subprocess.PIPE,
        )
        leaving.callback(devices.kill)
        driver = Supervised(tmp_path, "driver", "pipeline", "run")
        leaving.callback(driver.end, signal.SIGKILL)

        samples: list[Held] = []
        until = time.monotonic() + SECONDS
        while len(samples) < LEAST_SAMPLES or time.monotonic() < until:
            number = warehouse.state().number
            wait(lambda number=number: warehouse.state().number > number, driver)  # type: ignore[misc]
            swept_s = time.time()
            compaction = Supervised(tmp_path, "compaction", "pipeline", "compact")
            wait(lambda compaction=compaction: compaction.code is not None, driver)  # type: ignore[misc]
            assert compaction.code == 0, (tmp_path / "compaction.log").read_text()[-3000:]
            check_files(warehouse, swept_s)
            samples.append(held(driver.pid, server.pid, config, warehouse))
        devices.communicate(timeout=600)
        assert devices.returncode == 0
        wait(lambda: status(config, warehouse).logs[0].lag == 0, driver)
        assert driver.end(signal.SIGTERM) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    told(samples, warehouse.state().number)
    # Nothing is kept between batches: there is no state that could grow.
    assert not (warehouse.checkpoint / "state").exists()
    flat(samples)
    plant.check()
    published = (tmp_path / "published").read_bytes().splitlines()
    assert set(plant.table("bronze")["value"].to_pylist()) == set(published)
