import socket
import threading
import time
from pathlib import Path

from tests.support.mqtt_server import mqtt_server
from timestone_bench.mqtt.load.connecting import Connecting, ConnectJob


def test_all_connect_and_each_hears_its_own_topic(tmp_path: Path) -> None:
    with mqtt_server(tmp_path) as server:
        host, port = server.address
        connecting = Connecting(
            ConnectJob(scheme="mqtt", host=host, port=port, run="r", clients=50, rate=1000)
        )
        report = connecting.run(time.monotonic_ns())
        assert (report["connected"], report["failed"]) == (50, 0)
        assert report["ended_ns"] - report["started_ns"] >= 49e6
        assert server.status()["connections"] == 50
        assert connecting.wake(10)["lost"] == 0
        connecting.close()


def test_those_that_are_turned_away_are_counted(tmp_path: Path) -> None:
    with mqtt_server(tmp_path, connection_count=5) as server:
        host, port = server.address
        connecting = Connecting(ConnectJob(scheme="mqtt", host=host, port=port, run="r", clients=8))
        report = connecting.run(time.monotonic_ns())
        connecting.close()
    assert (report["connected"], report["failed"]) == (5, 3)


def test_those_whose_subscription_is_refused_are_counted_and_not_woken() -> None:
    def serve(listener: socket.socket) -> None:
        for number in range(3):
            channel, _ = listener.accept()
            channels.append(channel)
            channel.recv(4096)
            channel.sendall(b"\x20\x02\x00\x00\x90\x03\x00\x01" + (b"\x80" if number == 1 else b"\x01"))

    channels: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        host, port = listener.getsockname()
        connecting = Connecting(ConnectJob(scheme="mqtt", host=host, port=port, run="r", clients=3))
        report = connecting.run(time.monotonic_ns())
        server.join()
        assert (report["connected"], report["failed"]) == (2, 1)
        assert channels[1].recv(1) == b""
        connecting.close()
    for channel in channels:
        channel.close()
