import time
from pathlib import Path

import pytest

from mqtt_front.codec.packets import Publish
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.waiting import wait_for
from timestone_bench.mqtt.load.abusive_clients import AbusiveClients, AbusiveJob

pytestmark = pytest.mark.slow


def job_for(server: MqttProcess, payload_bytes: int) -> AbusiveJob:
    host, port = server.address
    spells = [(0.0, 0.1), (0.15, 0.25)]
    return AbusiveJob(
        scheme="mqtt", host=host, port=port, run="r", payload_bytes=payload_bytes, spells=spells
    )


def test_in_each_spell_one_floods_and_one_never_reads(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server, RawClient(server.address) as reader:
        job = job_for(server, 1000)
        reader.connect("reader")
        reader.subscribe(job.topic)
        abusive = AbusiveClients(job)
        payloads: list[bytes] = []

        def hears_of_it() -> bool:
            """A machine that stalls may sleep through a spell: then there is another run."""
            abusive.run(time.monotonic_ns())
            try:
                packet = reader.next_packet(0.1)
            except TimeoutError:
                return False
            assert isinstance(packet, Publish)
            payloads.append(packet.payload)
            return True

        wait_for(hears_of_it)
        assert len(payloads[0]) == 1000
        abusive.close()


def test_a_server_that_hangs_up_ends_the_spell_and_not_the_run(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server:
        abusive = AbusiveClients(job_for(server, 2 << 20))  # more than it takes in one packet
        wait_for(lambda: abusive.run(time.monotonic_ns())["bytes_per_s"] > 0)
        abusive.close()
