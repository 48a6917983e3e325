"""Devices report over MQTT, a query answers through the sink, and each device gets each answer once."""

import json
import os
import queue
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.cooling_job import run, start
from examples.server import Server
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

TEMPERATURES = [20.0, 31.0, 30.0, 35.5]
DEVICES = ("kiln", "oven")


def report(device: PahoClient, name: str, sequence: int, temperature: float) -> None:
    message = json.dumps({"seq": sequence, "temperature": temperature})
    device.publish(f"devices/{name}/telemetry", message.encode(), 1)


def answers(device: PahoClient, count: int) -> list[int]:
    """Return the reports that the next `count` commands answer."""
    return [json.loads(device.messages.get(timeout=120).payload)["seq"] for _ in range(count)]


def test_each_device_gets_each_command_once_when_a_batch_runs_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with (
        Server(tmp_path / "data", tmp_path / "log") as server,
        PahoClient("kiln") as kiln,
        PahoClient("oven") as oven,
    ):
        devices = dict(zip(DEVICES, (kiln, oven), strict=True))
        for name, device in devices.items():
            assert device.connect((server.host, server.port)) == 0
            device.subscribe(f"devices/{name}/cmd", 2)
            for sequence, temperature in enumerate(TEMPERATURES):
                report(device, name, sequence, temperature)
        start(spark, server.data, checkpoint, once=True).awaitTermination()
        assert {name: answers(device, 2) for name, device in devices.items()} == {
            "kiln": [1, 3],
            "oven": [1, 3],
        }

        # As if the driver had died when the commands were on their way, and Spark did not know.
        for path in (checkpoint / "commits").glob("*0*"):
            path.unlink()
        report(kiln, "kiln", 4, 99.0)
        start(spark, server.data, checkpoint, once=True).awaitTermination()
        assert answers(kiln, 1) == [4]
        with pytest.raises(queue.Empty):
            oven.messages.get(timeout=1)
        assert kiln.messages.empty()

        query = start(spark, server.data, checkpoint)
        report(kiln, "kiln", 5, 99.0)
        before = signal.getsignal(signal.SIGINT)

        def interrupt() -> None:
            # Before `run` has begun, it would interrupt the tests.
            wait_for(lambda: signal.getsignal(signal.SIGINT) is not before, timeout_s=120)
            try:
                wait_for(lambda: not kiln.messages.empty(), timeout_s=120)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        with ThreadPoolExecutor(1) as beside:
            interrupting = beside.submit(interrupt)
            run(query)
            interrupting.result()
        assert not query.isActive
        command = kiln.messages.get()
        assert (json.loads(command.payload)["seq"], command.qos) == (5, 2)
        assert caplog.text == ""
        server.stop()
