"""kill -9 of driver, server, workers and compaction, while devices publish: every number is as in a run without kills.

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
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.stubborn_device import StubbornDevice
from tests.support.supervised import Supervised, listening
from timestone_pipeline import MAINTENANCE, backfill, open_tables, status

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


def run_rounds(plant: Plant, chance: random.Random, ended: ExitStack) -> None:
    root = plant.data.parent
    address = ("127.0.0.1", ended.enter_context(reserved_port()))
    (root / "pipeline.toml").write_text(
        '[source]\npath = "data"\nlogs = ["mqtt"]\n[spark]\nmaster = "local[2,4]"\ntrigger_s = 1\n'
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
    killed = {"driver": 0, "server": 0, "worker": 0, "compaction": 0}
    until = time.monotonic() + SECONDS
    while killed["driver"] < ROUNDS or time.monotonic() < until:
        another_batch()
        alive_until(kill_worker)
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
    alive_until(lambda: listening(address))
    for device in devices:
        device.finish()
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
