"""kill -9 of driver, server, workers and compaction, while devices publish: every number as if nothing had happened.

TIMESTONE_PIPELINE_ROUNDS=30 for about ten minutes.
"""

import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import timestone
from tests.support.plant import LOG, Plant
from tests.support.processes import descendants
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.stubborn_device import StubbornDevice
from tests.support.supervised import Supervised, listening
from timestone_pipeline import MAINTENANCE, backfill, open_tables, status

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]

ROUNDS = rounds(1, "TIMESTONE_PIPELINE_ROUNDS")
DEVICES = 4
STEP_S = 5
"""Telemetry time between two messages of a device: windows close all the time."""


@pytest.mark.timeout(600 + 120 * ROUNDS)
def test_whoever_is_killed_the_tables_are_what_the_devices_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = run_seed("pipeline")
    with told_on_failure(TIMESTONE_SEED=seed, folder=tmp_path), ExitStack() as ended:
        run_rounds(Plant(spark, tmp_path), random.Random(seed), ended)


def run_rounds(plant: Plant, chance: random.Random, ended: ExitStack) -> None:
    root = plant.data.parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address: tuple[str, int] = probe.getsockname()
    (root / "pipeline.toml").write_text(
        '[source]\npath = "data"\nlogs = ["mqtt"]\n[spark]\nmaster = "local[2,4]"\ntrigger_s = 1\n'
        '[spark.conf]\n"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"\n'
    )
    server = Supervised(root, "server", "serve", "--data", "data", "--mqtt", f"127.0.0.1:{address[1]}")
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
        number = warehouse.ledger.state().number
        alive_until(lambda: warehouse.ledger.state().number > number)

    alive_until(lambda: listening(address), 60)
    devices = [StubbornDevice(f"d{number}", address, step_s=STEP_S) for number in range(DEVICES)]
    for device in devices:
        device.start()
    killed = {"driver": 0, "server": 0, "worker": 0, "compaction": 0}
    for _ in range(ROUNDS):
        another_batch()
        workers = [pid for pid, words in descendants(driver.pid).items() if "pyspark.daemon" in words]
        if workers:
            os.kill(max(workers), signal.SIGKILL)
            killed["worker"] += 1
        time.sleep(chance.uniform(0, 1))
        server.end(signal.SIGKILL)
        killed["server"] += 1
        another_batch()
        compaction = Supervised(root, "compaction", "pipeline", "compact")
        time.sleep(chance.uniform(0.5, 3))
        compaction.end(signal.SIGKILL)
        killed["compaction"] += 1
        time.sleep(chance.uniform(0, 1.5))
        driver.end(signal.SIGKILL)
        killed["driver"] += 1
    alive_until(lambda: listening(address), 60)
    for device in devices:
        device.finish()
    alive_until(lambda: status(plant.config, warehouse).logs[0].lag == 0)
    driver.end(signal.SIGTERM)
    server.end(signal.SIGTERM)
    assert all(killed.values()), killed

    plant.run(final=True)
    with warehouse.role(MAINTENANCE):
        backfill(plant.config, warehouse, plant.spark)
    check(plant, [payload for device in devices for payload in device.published])


def check(plant: Plant, published: list[bytes]) -> None:
    plant.check()
    with timestone.view(plant.data) as store:
        end = store.log(LOG).end_offset
    assert plant.rows("bronze", "offset") == [(offset,) for offset in range(end)]
    bronze = plant.table("bronze")["value"].to_pylist()
    assert set(bronze) == set(published), "acknowledged, and nothing else"

    good = [one for one in published if not one.startswith(b"broken") and b'"2199-' not in one]
    identity = sorted((one["device"], one["seq"]) for one in map(json.loads, good))
    assert plant.rows("clean", "device", "seq") == identity
    assert set(plant.table("dead_letters")["value"].to_pylist()) == set(published) - set(good)
    assert plant.rows("late", "offset") == []
    assert plant.windows() == plant.averages(good)
    newest = {device: seq for device, seq in identity}
    assert plant.rows("last", "device", "seq") == sorted(newest.items())

    # Whoever has the list of files, and whoever reads the folder, sees the same.
    warehouse = open_tables(plant.config)
    files = warehouse.paths(warehouse.ledger.state().of("clean"))
    assert ds.dataset(files).count_rows() == len(identity)
