"""What has to hold after faults, read from the files of the nodes without the code under test."""

import re
import statistics
import time
from collections import Counter

from tests.cluster.machine_cluster import LOGS, MachineCluster
from tests.cluster.mix_clients import Clients
from tests.cluster.nemeses import Nemesis
from tests.cluster.node_processes import HeldRecord, held
from timestone.config import StoreConfig
from timestone_tiering.view import view_bucket

HEAL_S = 90.0
"""Within this time after a round all replicas are in sync, and each client has something acknowledged."""
ALARMS = (
    "Traceback",
    "which were shown",
    " CRITICAL ",
    "in the middle of a segment",
    "is not the one that this node has joined",
)
EQUAL_S = 300.0
"""Within this time after the last round the files of all replicas are equal; reading many records takes a while."""


def recover(nemesis: Nemesis, clients: Clients, limit_s: float) -> None:
    """End all faults, and require that all replicas are in sync and all clients served within a time."""
    began_s = time.monotonic()
    nemesis.heal(limit_s)
    nemesis.cluster.all_in_sync(limit_s - (time.monotonic() - began_s))
    whole_s = time.monotonic()
    while late := clients.late(whole_s):
        assert time.monotonic() - began_s < limit_s, f"not served: {late}"
        time.sleep(0.05)


def stopped(cluster: MachineCluster) -> dict[str, list[HeldRecord]]:
    """Stop all nodes once the files of the replicas are equal, and return what they hold."""
    cluster.all_in_sync(HEAL_S)
    ends_s = time.monotonic() + EQUAL_S
    while True:
        folders = [cluster.nodes[name].folder for name in cluster.replicas()]
        found = {log: [held(folder / f"{log}-0") for folder in folders] for log in LOGS}
        if len(folders) == 3 and all(one == each[0] for each in found.values() for one in each):
            break
        assert time.monotonic() < ends_s, {log: list(map(len, each)) for log, each in found.items()}
        time.sleep(0.5)
    for node in cluster.nodes.values():
        node.stop()
    after = {log: [held(folder / f"{log}-0") for folder in folders] for log in LOGS}
    assert after == found, "records have come or gone at the stop"
    return {log: each[0] for log, each in after.items()}


def check_bucket(cluster: MachineCluster, logs: dict[str, list[HeldRecord]]) -> None:
    """Require that the bucket has the beginning of each log."""
    with view_bucket(f"s3://{cluster.bucket.bucket}/cluster") as bucket:
        for name, _ in bucket.log_names():
            history = [bytes(record.payload) for record in bucket.log(name)]
            held_here = zip(history, logs[name], strict=False)  # at QoS 2 with a header in front
            assert 0 < len(history) <= len(logs[name]), name
            assert all(one.payload.endswith(payload) for payload, one in held_here), name
            print(f"the bucket has {len(history)} of {len(logs[name])} records of {name}")


def check_output(cluster: MachineCluster) -> None:
    """Require that no node has printed an error of its own, or an alarm. uvloop prints one where a connection with TLS
    ends while something arrives on it, and it is closed then as it should be."""
    for name, node in cluster.nodes.items():
        entries = re.split(r"\n(?=20\d\d-\d\d-\d\dT)", node.output())
        wrong = [
            entry
            for entry in entries
            if any(word in entry for word in ALARMS) and "Fatal error on SSL protocol" not in entry
        ]
        assert not wrong, f"{name}: {wrong[:5]}"


def _published(stored: bytes) -> bytes:
    """Return a payload without the header that is in front of it at QoS 2."""
    found = re.search(rb"[012]:\d+$", stored)
    assert found is not None, stored
    return found[0]


def check_publishes(log: list[HeldRecord], clients: Clients) -> None:
    """Compare the log of MQTT with what its clients know."""
    payloads = [_published(one.payload) for one in log]
    count = Counter(payloads)
    acknowledged = {number for one in clients.publishers for number in one.acknowledged}
    missing = acknowledged - {int(payload[2:]) for payload in payloads}
    assert acknowledged, "the clients did nothing"
    assert not missing, f"{len(missing)} acknowledged publishes are missing: {sorted(missing)[:5]}"
    twice = [payload for payload, times in count.items() if payload[:1] == b"2" and times > 1]
    assert not twice, f"QoS 2 twice in the log: {twice[:5]}"
    promised = list(dict.fromkeys(payload for payload in payloads if payload[:1] != b"0"))
    for publisher in clients.publishers:
        mine = [
            int(one[2:]) for one in promised if int(one[2:]) // 100_000_000 == publisher.first // 100_000_000
        ]
        assert mine == sorted(mine), f"the order of {publisher.client_id} is not kept"
    for subscriber in clients.subscribers:
        received = [payload for payload in subscriber.received if payload[:1] != b"0"]
        name = subscriber.client_id
        assert list(dict.fromkeys(received)) == promised, f"the session {name} is not complete in order"
        if subscriber.qos == 2:
            twice = [
                payload for payload, times in Counter(received).items() if payload[:1] == b"2" and times > 1
            ]
            assert not twice, f"QoS 2 was delivered twice to {name}: {twice[:5]}"
    times = [one.timestamp_us for one in log]
    assert times == sorted(times)


def check_appends(log: list[HeldRecord], clients: Clients) -> None:
    """Compare the log of the appenders with what they know, and with what readers were shown."""
    payloads = [one.payload for one in log]
    places = {payload: offset for offset, payload in enumerate(payloads)}
    assert len(places) == len(payloads), "a record is there twice"
    known: dict[bytes, int] = {}
    for one in clients.appenders:
        assert one.acknowledged, f"{one.name} did nothing"
        known |= one.acknowledged
    wrong = [payload for payload, offset in known.items() if places.get(payload) != offset]
    assert not wrong, f"{len(wrong)} of {len(known)} acknowledged are elsewhere or missing: {wrong[:5]}"
    refused = places.keys() - known.keys() - set().union(*(one.unknown for one in clients.appenders))
    assert not refused, f"{len(refused)} were refused, and are there: {sorted(refused)[:5]}"
    newest: dict[bytes, int] = {}
    for payload in payloads:
        name, number = payload.split()
        assert int(number) > newest.get(name, -1), f"{payload!r} stands behind a later one"
        newest[name] = int(number)
    times = [one.timestamp_us for one in log]
    assert times == sorted(times)
    shown = clients.reader.shown
    assert shown == payloads[: len(shown)], "readers were shown something else"


_OPEN_FILES_MOST = 2 * StoreConfig().open_segment_count + 128
"""Two files for each segment that the cache keeps open; the rest is for what is written, links and clients."""


class Figures:
    """Memory and open files of nodes, a sample a minute."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster = cluster
        self._next_s = time.monotonic()
        self._found: dict[str, list[tuple[int, int]]] = {name: [] for name in cluster.nodes}

    def sample(self) -> None:
        """Take a sample, if a minute has passed."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + 60
        for name, node in self._cluster.nodes.items():
            if node.process is not None:
                self._found[name].append((node.memory_mib(), node.open_files()))
        shown = ", ".join(
            f"{name} {found[-1][0]}/{found[-1][1]}" for name, found in self._found.items() if found
        )
        print(f"memory MiB/open files: {shown}", flush=True)

    def check(self) -> None:
        """Require that nodes take no more memory in the last quarter than in the second one, all together, for a leader
        keeps more of the newest records than the others; and no more files than connections and logs need beside the
        cache of open segments."""
        quarters: list[list[int]] = [[], []]
        for name, found in self._found.items():
            most = max(files for _, files in found)
            print(f"{name}: at most {most} open files", flush=True)
            assert most <= _OPEN_FILES_MOST, f"{name}: {most} open files"
            quarter = len(found) // 4
            for mib, part in zip(
                quarters, (found[quarter : 2 * quarter], found[len(found) - quarter :]), strict=True
            ):
                mib += [one for one, _ in part]
        if len(quarters[0]) >= 25:
            second, last = (statistics.median(mib) for mib in quarters)
            print(f"median {second} MiB in the second quarter, {last} in the last", flush=True)
            assert last <= 1.25 * second + 24, f"nodes grow: {self._found}"
