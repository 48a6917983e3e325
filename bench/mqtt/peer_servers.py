"""Other servers of this machine, each on a free port over a temporary directory.

Their settings are those that users change for load: no limits on queues, and no logs.
"""

import contextlib
import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BenchmarkError
from .servers import server_process, wait_until_listening
from .target import Target

_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay {nodelay}
max_inflight_messages {window}
max_queued_messages 0
max_connections -1
log_type error
user root
"""
_NATS = """\
server_name: bench
listen: 127.0.0.1:{native}
max_connections: 20000
ping_interval: "1h"
jetstream {{ store_dir: "{directory}" }}
mqtt {{ listen: "127.0.0.1:{mqtt}", max_ack_pending: {window} }}
"""
_RUMQTTD = """\
id = 0
[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.mqtt]
name = "mqtt"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 1
[v4.mqtt.connections]
connection_timeout_ms = 60000
max_payload_size = 1048576
max_inflight_count = {window}
dynamic_filters = true
"""
_WINDOW = 1024
"""Unacknowledged deliveries to one client: Timestone's default."""


def installed_version(program: str) -> str | None:
    """Return the first line of a program's version; None when it is not installed."""
    path = find_program(program)
    if path is None:
        return None
    words = ["-h"] if program == "mosquitto" else ["--version"]
    said = subprocess.run([path, *words], capture_output=True, text=True, timeout=10, check=False)
    return (said.stdout or said.stderr).strip().splitlines()[0]


def find_program(program: str) -> str | None:
    """Return the path of a program; servers are often in directories that only the administrator's PATH has."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


@contextmanager
def mosquitto_server(directory: Path, *, nodelay: bool) -> Iterator[Target]:
    """Run mosquitto with its default: everything in memory, nothing on the disk. The system combines its small packets
    (Nagle's algorithm), which gives more acknowledgements a second, but later. With `nodelay` it does not, nor do the
    other servers."""
    (port,) = free_ports(1)
    configuration = directory / "mosquitto.conf"
    configuration.write_text(
        _MOSQUITTO.format(port=port, window=_WINDOW, nodelay=str(nodelay).lower()), "utf-8"
    )
    command = [find_program("mosquitto") or "mosquitto", "-c", str(configuration)]
    with server_process(command, directory) as process:
        wait_until_listening(("127.0.0.1", port), process, directory)
        name = "mosquitto nodelay" if nodelay else "mosquitto"
        yield Target(name, "mqtt", "127.0.0.1", port, process.pid)


@contextmanager
def nats_server(directory: Path, *, native: bool) -> Iterator[Target]:
    """Run nats-server with its MQTT gateway, which keeps QoS 1 in JetStream files without syncing them, or with its own
    protocol."""
    native_port, mqtt_port = free_ports(2)
    configuration = directory / "nats.conf"
    configuration.write_text(
        _NATS.format(native=native_port, mqtt=mqtt_port, directory=directory / "jetstream", window=_WINDOW),
        "utf-8",
    )
    command = [find_program("nats-server") or "nats-server", "-c", str(configuration)]
    with server_process(command, directory) as process:
        wait_until_listening(("127.0.0.1", mqtt_port), process, directory)
        if native:
            yield Target("nats", "nats", "127.0.0.1", native_port, process.pid)
        else:
            yield Target("nats mqtt", "mqtt", "127.0.0.1", mqtt_port, process.pid)


@contextmanager
def rumqttd_server(directory: Path) -> Iterator[Target]:
    """Run rumqttd, which keeps everything in memory."""
    (port,) = free_ports(1)
    configuration = directory / "rumqttd.toml"
    configuration.write_text(_RUMQTTD.format(port=port, window=_WINDOW), "utf-8")
    command = [find_program("rumqttd") or "rumqttd", "-c", str(configuration)]
    with server_process(command, directory) as process:
        wait_until_listening(("127.0.0.1", port), process, directory)
        yield Target("rumqttd", "mqtt", "127.0.0.1", port, process.pid)


def free_ports(count: int) -> list[int]:
    """Return free ports below the range that the system assigns automatically, so that no other process gets one before
    the server listens."""
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(given_out.read_text("ascii").split()[0]) if given_out.exists() else 32768
    ports: list[int] = []
    for port in random.sample(range(end // 2, end), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise BenchmarkError("no free port among a hundred")
