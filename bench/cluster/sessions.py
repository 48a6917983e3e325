"""Sessions that stay, very many of them, and how soon a new leader serves them."""

import asyncio
import socket
import threading
import time

from timestone_cluster.errors import ClusterError
from timestone_cluster.shard_record import ShardRecord

from ..errors import BenchmarkError
from ..mqtt.load.channel import receive
from ..mqtt.load.client_protocols import CLIENT_PROTOCOLS
from .own_cluster import OwnCluster

_MQTT = CLIENT_PROTOCOLS["mqtt"]
_AT_ONCE = 50
_TRIES = 5
_ANSWER_BYTES = 9
"""Of CONNACK and SUBACK."""
_ANSWER_S = 60.0
_LOOK_S = 0.002


def make_sessions(cluster: OwnCluster, count: int) -> None:
    """Connect clients whose sessions stay, with a subscription each, and disconnect them. Raises BenchmarkError."""
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(count, first + _AT_ONCE))
        for _ in range(_TRIES):
            if _make(cluster.leader().address, numbers):
                break
        else:
            raise BenchmarkError(f"sessions from {first:,} on were refused {_TRIES} times")


def _make(address: tuple[str, int], numbers: range) -> bool:
    """Make some sessions at once; return whether all are there. On a busy machine the leader may change."""
    channels: list[socket.socket] = []
    try:
        for number in numbers:
            channels.append(socket.create_connection(address, _ANSWER_S))
            hello = _MQTT.hello(_client(number), clean=False)
            channels[-1].sendall(hello + _MQTT.subscribe(f"devices/{number:06}/#", 1))
        for channel in channels:
            answer = receive(channel, _ANSWER_BYTES)
            if len(answer) < _ANSWER_BYTES or answer[3]:
                return False
            channel.sendall(_MQTT.goodbye)
        return True
    except OSError:
        return False
    finally:
        for channel in channels:
            channel.close()


def _client(number: int) -> str:
    return f"device-{number:06}"


def served_after_s(cluster: OwnCluster) -> float:
    """Kill the leader, and return the seconds from the moment that etcd has another one to the CONNACK of a client that
    connects at the third node, whose session has to be there. Raises BenchmarkError."""
    leader = cluster.leader()
    others = [node for node in cluster.nodes if node is not leader]
    address = others[0].address
    election = _Election(cluster)
    leader.kill()
    try:
        served_s = _connected_s(address)
        return served_s - election.seen_s()
    finally:
        leader.start()


def _connected_s(address: tuple[str, int]) -> float:
    """Return when a client of a session has its CONNACK: connects until it has."""
    ends_s = time.monotonic() + _ANSWER_S
    while time.monotonic() < ends_s:
        try:
            with socket.create_connection(address, _ANSWER_S) as channel:
                channel.sendall(_MQTT.hello(_client(0), clean=False))
                answer = receive(channel, 4)
                if answer == b"\x20\x02\x01\x00":
                    return time.monotonic()
                if len(answer) == 4 and not answer[3]:
                    raise BenchmarkError("a session is lost")
        except OSError:
            pass
        time.sleep(_LOOK_S)
    raise BenchmarkError(f"no client was served for {_ANSWER_S:.0f} s")


class _Election:
    """Looks at etcd, from a thread, until another node leads."""

    def __init__(self, cluster: OwnCluster) -> None:
        self._cluster = cluster
        self._seen_s: float | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look()), daemon=True)
        self._thread.start()
        self._ready.wait(_ANSWER_S)

    def seen_s(self) -> float:
        """Return when another node led."""
        self._thread.join(_ANSWER_S)
        if self._seen_s is None:
            raise BenchmarkError("no other node was elected")
        return self._seen_s

    async def _look(self) -> None:
        key, first = self._cluster.address.keys.shard(0), -1
        async with self._cluster.address.client(None) as etcd, asyncio.timeout(_ANSWER_S):
            while True:
                try:
                    pair = (await etcd.read(key)).pairs[key]
                except (ClusterError, KeyError):
                    continue
                record = ShardRecord.decode(pair.value)
                first = record.generation if first < 0 else first
                self._ready.set()
                if record.generation > first:
                    self._seen_s = time.monotonic()
                    return
                await asyncio.sleep(_LOOK_S)
