"""kill -9 of driver, server, workers, compaction and object storage, while devices publish: every number is as in a run
without kills. With log and tables in folders, and in a bucket, where the driver does without the folder of the store.

TIMESTONE_PIPELINE_SECONDS=600 runs for ten minutes, TIMESTONE_PIPELINE_ROUNDS=30 for this number of rounds; `pytest -s`
shows the counts.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.plant import Plant
from tests.support.ports import reserved_port
from tests.support.processes import descendants
from tests.support.s3_server import BUCKET, S3Server
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.stubborn_device import StubbornDevice
from tests.support.supervised import Supervised, listening
from timestone import LogConfig
from timestone_pipeline import MAINTENANCE, TablesConfig, backfill, open_tables, status

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]

ROUNDS = rounds(1, "TIMESTONE_PIPELINE_ROUNDS")
SECONDS = rounds(0, "TIMESTONE_PIPELINE_SECONDS")
DEVICES = 4
STEP_S = 5
"""Telemetry time between two messages of a device: windows close all the time."""


@pytest.mark.timeout(900 + 300 * ROUNDS + SECONDS)
def test_tables_equal_the_published_messages_when_any_process_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = run_seed("pipeline")
    with told_on_failure(TIMESTONE_SEED=seed, folder=tmp_path), ExitStack() as ended:
        run_rounds(Plant(spark, tmp_path), random.Random(seed), ended)


@pytest.mark.timeout(900 + 300 * ROUNDS + SECONDS)
def test_tables_in_a_bucket_equal_the_published_messages_when_any_process_is_killed(
    spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    url = f"s3://{BUCKET}/{tmp_path.name}"
    plant = Plant(
        spark,
        tmp_path,
        log=LogConfig(segment_entries=50),
        tables=TablesConfig(path=f"{url}/tables"),
    )
    seed = run_seed("pipeline")
    with told_on_failure(TIMESTONE_SEED=seed, folder=tmp_path), ExitStack() as ended:
        run_rounds(plant, random.Random(seed), ended, s3, f"{url}/log")


def run_rounds(
    plant: Plant, chance: random.Random, ended: ExitStack, s3: S3Server | None = None, url: str = ""
) -> None:
    """With `url`, the server uploads there, and the driver reads that; the run at the end reads all of the store."""
    root = plant.data.parent
    address = ("127.0.0.1", ended.enter_context(reserved_port()))
    (root / "pipeline.toml").write_text(
        f'[source]\npath = "{url or "data"}"\nlogs = ["mqtt"]\n[tables]\npath = "{plant.config.tables.path}"\n'
        '[spark]\nmaster = "local[2,4]"\ntrigger_s = 1\n'
    )
    words = ("--mqtt", f"127.0.0.1:{address[1]}", *(("--tier", url) if url else ()))
    server = Supervised(root, "server", "serve", "--data", "data", *words)
    driver = Supervised(root, "driver", "pipeline", "run")
    for one in (server, driver):
        ended.callback(one.end, signal.SIGKILL)

    def alive_until(done: Callable[[], object], timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, (root / "driver.log").read_text()[-3000:]
            server.ensure()
            driver.ensure()
            time.sleep(0.05)

    warehouse = open_tables(plant.config)

    def another_batch() -> None:
        number = warehouse.state().number
        alive_until(lambda: warehouse.state().number > number)

    def kill_worker() -> bool:
        """Kill a worker; False when there is none at the moment."""
        workers = [pid for pid, words in descendants(driver.pid).items() if ".daemon pyspark" in words]
        for pid in sorted(workers, reverse=True):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended since
            killed["worker"] += 1
            return True
        return False

    alive_until(lambda: listening(address))
    devices = [StubbornDevice(f"d{number}", address, step_s=STEP_S) for number in range(DEVICES)]
    for device in devices:
        device.start()
    killed = {
        "driver": 0,
        "server": 0,
        "worker": 0,
        "compaction": 0,
        **({} if s3 is None else {"storage": 0}),
    }
    until = time.monotonic() + SECONDS
    while killed["driver"] < ROUNDS or time.monotonic() < until:
        another_batch()
        alive_until(kill_worker)
        time.sleep(chance.uniform(0, 1))
        server.end(signal.SIGKILL)
        killed["server"] += 1
        another_batch()
        if s3 is not None:
            time.sleep(chance.uniform(0, 1))
            s3.stop()
            killed["storage"] += 1
            s3.start()
            another_batch()
        compaction = Supervised(root, "compaction", "pipeline", "compact")
        time.sleep(chance.uniform(0.5, 3))
        compaction.end(signal.SIGKILL)
        killed["compaction"] += 1
        time.sleep(chance.uniform(0, 1.5))
        driver.end(signal.SIGKILL)
        killed["driver"] += 1
    alive_until(lambda: listening(address))
    for device in devices:
        device.finish()
    if s3 is None:
        alive_until(lambda: status(plant.config, warehouse).logs[0].lag == 0)
    driver.end(signal.SIGTERM)
    server.end(signal.SIGTERM)
    assert all(killed.values()), killed

    plant.run(final=True)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, plant.spark)
    published = [payload for device in devices for payload in device.published]
    print(f"killed {killed}; published and acknowledged {len(published)}, in the tables {plant.counts()}")
    plant.check_published(published)
