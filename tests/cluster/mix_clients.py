"""Clients of a cluster under faults, and what they know afterwards, which `mix_checks` compares with the files of the
nodes."""

import asyncio
import bisect
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import timestone
from mqtt_front.codec.packets import Packet
from tests.cluster.machine_cluster import KEYS, LOG, MachineCluster
from tests.cluster.mqtt_cluster import roaming
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_lasting import LastingPublisher, LastingSubscriber
from timestone.errors import NotLeader, TimestoneError
from timestone_cluster.errors import AppendUnknown, ClusterError
from timestone_cluster.node.client import ClusterClient

PATIENCE_S = 6.0
"""How long a client of MQTT waits before it connects elsewhere."""
LAST = b"1:1000000000"


class PacedPublisher(LastingPublisher):
    """Publishes a few at a time, with pauses, so that a long run leaves the machine to others."""

    look_s = 0.1

    def __init__(self, name: str, level: int, first: int, chance: random.Random, topics: list[str]) -> None:
        super().__init__(name, level, first, chance, topics)
        self.patience_s, self.window = PATIENCE_S, 5
        self.acknowledged_s: list[float] = []
        """When each acknowledgement came."""
        self._next_s = 0.0

    def go_on(self, client: RawClient) -> None:
        if (now_s := time.monotonic()) >= self._next_s:
            self._next_s = now_s + 0.25
            super().go_on(client)

    def take(self, client: RawClient, packet: Packet) -> None:
        count = len(self.acknowledged)
        super().take(client, packet)
        if len(self.acknowledged) > count:
            self.acknowledged_s.append(time.monotonic())


def longest_pause(times_s: list[float], began_s: float, ended_s: float) -> float:
    """Return the longest time between two neighbours of these times that touches a range of time; its ends count as
    neighbours where there are none. The times are sorted."""
    first = max(0, bisect.bisect_right(times_s, began_s) - 1)
    inside = times_s[first : bisect.bisect_right(times_s, ended_s)]
    whole = [*(inside or [began_s]), ended_s]
    return max(later - time_s for time_s, later in itertools.pairwise(whole))


class Appender:
    """Appends records to a log one after another, each once, in a thread, and notes what is known of each."""

    def __init__(self, cluster: MachineCluster, name: str) -> None:
        self._cluster, self.name = cluster, name
        self.acknowledged: dict[bytes, int] = {}
        self.unknown: set[bytes] = set()
        self.acknowledged_s: list[float] = []
        self.failure: BaseException | None = None

    def run(self, ended: threading.Event) -> None:
        try:
            asyncio.run(self._run(ended))
        except BaseException as error:
            self.failure = error

    async def _run(self, ended: threading.Event) -> None:
        async with self._cluster.etcd_client() as etcd:
            client, number = ClusterClient(etcd, KEYS, context=self._cluster.certificates.client_context()), 0
            while not ended.is_set():
                payload = f"{self.name} {number}".encode()
                try:
                    async with asyncio.timeout(8):
                        self.acknowledged[payload] = await client.append(
                            LOG, [payload], topics=[f"{self.name}/{number % 50}"]
                        )
                    self.acknowledged_s.append(time.monotonic())
                except (AppendUnknown, TimeoutError):
                    self.unknown.add(payload)
                except (ClusterError, NotLeader, OSError):
                    await asyncio.sleep(0.05)
                number += 1
                await asyncio.sleep(0.05)
            await client.close()


class Reader:
    """Reads what each node shows of a log, again and again: an offset has one value on all of them, at all times."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster = cluster
        self.shown: list[bytes] = []
        """By offset."""
        self._next: dict[str, int] = {}
        self.reads = 0
        self.errors: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self, ended: threading.Event) -> None:
        try:
            while not ended.is_set():
                for name in self._cluster.nodes:
                    self.look(name)
                time.sleep(0.5)
        except BaseException as error:
            self.failure = error

    def look(self, name: str) -> None:
        """Read on at a node, if it has the log: it may be deleting it, or be copying it."""
        node = self._cluster.nodes[name]
        identity = f"{name} {node.node_id()}"
        offset = self._next.get(identity, 0)
        try:
            with timestone.view(node.folder) as view:
                for record in view.log(LOG).read(offset):
                    self._compare(name, record.offset, bytes(record.payload))
                    self._next[identity] = record.offset + 1
                    self.reads += 1
        except (TimestoneError, OSError) as error:
            self.errors[type(error).__name__] += 1

    def _compare(self, name: str, offset: int, payload: bytes) -> None:
        assert offset <= len(self.shown), f"{name} shows {offset} after {len(self.shown)}: one is missing"
        if offset == len(self.shown):
            self.shown.append(payload)
        known = self.shown[offset]
        assert known == payload, f"{name} shows {payload!r} at {offset}, where {known!r} was shown"


class Clients:
    """All clients of a run."""

    def __init__(self, cluster: MachineCluster, chance: random.Random) -> None:
        keys = [f"devices/{number}" for number in range(8)]
        self.publishers = [
            PacedPublisher(f"p{number}", 4 + number % 2, (number + 1) * 100_000_000, chance, keys)
            for number in range(4)
        ]
        self.subscribers = [
            LastingSubscriber(f"s{level}-{qos}", level, qos, "devices/+")
            for level in (4, 5)
            for qos in (1, 2)
        ]
        for subscriber in self.subscribers:
            subscriber.patience_s = PATIENCE_S
        self.appenders = [Appender(cluster, f"w{number}") for number in range(3)]
        self.reader = Reader(cluster)

    def check_alive(self) -> None:
        """Raise what has ended a client."""
        for failure in (*(one.failure for one in self.appenders), self.reader.failure):
            if failure is not None:
                raise failure

    def late(self, began_s: float) -> list[str]:
        """Return the clients of which nothing was acknowledged since a time."""
        self.check_alive()
        ones = [(one.client_id, one.acknowledged_s) for one in self.publishers]
        others = [(one.name, one.acknowledged_s) for one in self.appenders]
        return [name for name, times in (*ones, *others) if not times or times[-1] <= began_s]

    def pauses(self, began_s: float, ended_s: float) -> list[float]:
        """Return the longest time without an acknowledgement of each publisher in a time."""
        return [longest_pause(one.acknowledged_s, began_s, ended_s) for one in self.publishers]

    def counts(self) -> str:
        sent = sum(len(one.acknowledged) for one in self.publishers)
        appended = sum(len(one.acknowledged) for one in self.appenders)
        unknown = sum(len(one.unknown) for one in self.appenders)
        received = sum(len(one.received) for one in self.subscribers)
        return (
            f"{sent} publishes acknowledged, {received} received, {appended} appends acknowledged, {unknown} unknown, "
            f"{self.reader.reads} read {dict(self.reader.errors)}"
        )


@contextmanager
def working(cluster: MachineCluster, clients: Clients, seed: int) -> Iterator[None]:
    """Have all clients work until the end of the block; it then ends all publishes, and waits until each session has
    the last one."""
    ended = threading.Event()
    runs = [*(one.run for one in clients.appenders), clients.reader.run]
    threads = [threading.Thread(target=run, args=(ended,), daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    try:
        with roaming([*clients.subscribers], cluster.addresses, seed):
            _until(lambda: all(one.subscribed for one in clients.subscribers), "sessions are subscribed")
            with roaming([*clients.publishers], cluster.addresses, seed + 100):
                yield
                for publisher in clients.publishers:
                    publisher.stopping = True
                _until(lambda: all(one.idle for one in clients.publishers), "all publishes are acknowledged")
            last = LastingPublisher("last", 4, 10**9, random.Random(seed), ("devices/0",))
            last.end_with(10**9)
            with roaming([last], cluster.addresses, seed + 200):
                _until(lambda: last.idle, "the last publish is acknowledged")
            _until(
                lambda: all(LAST in one.received[-9:] for one in clients.subscribers),
                "sessions have the last one",
            )
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
        clients.check_alive()


def _until(is_so: "object", what: str, limit_s: float = 90.0) -> None:
    assert callable(is_so)
    ends_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.05)
