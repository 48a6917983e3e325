from pathlib import Path

from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.waiting import wait_for
from timestone_bench.mqtt.disturbing import Disturbing, DisturbJob


def test_one_floods_until_it_is_told_to_end_and_one_never_reads(tmp_path: Path) -> None:
    with MqttProcess(tmp_path) as server, RawClient(server.address) as reader:
        host, port = server.address
        job = DisturbJob(scheme="mqtt", host=host, port=port, run="r", payload_bytes=1000)
        assert DisturbJob(**job.to_json()) == job
        reader.connect("reader")
        reader.subscribe(job.topic)
        disturbing = Disturbing(job)
        assert disturbing.begin() == {"began": True}
        assert {len(one.payload) for one in reader.receive(100)} == {1000}
        wait_for(lambda: disturbing._sent_bytes > 10_000_000)  # while nobody reads what it is subscribed to
        assert disturbing.end()["bytes_per_s"] > 0
