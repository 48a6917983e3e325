"""What is measured: each case is one run of one system, and returns figures by name."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from timestone_cluster.moving import drain_node, undrain_node

from ..errors import BenchmarkError
from ..mqtt.scenario import Scenario, run_scenario
from ..mqtt.servers import timestone_server
from ..mqtt.target import Target
from . import appends
from .bare_replication import acknowledgements_us, messages_per_s, percentiles
from .own_cluster import Node, OwnCluster, own_cluster
from .pauses import publisher
from .peer_clusters import (
    KafkaCluster,
    System,
    kafka_cluster,
    nats_cluster,
    processor_s,
    rabbitmq_cluster,
)
from .sessions import make_sessions, served_after_s

Figures = dict[str, float]
_CONNECTS = ("--mqtt-connection-count", "20000", "--mqtt-connects-per-s", "0")
_SHARDS = 16
_CLIENTS = 1000
"""Of the cases in which each sends one message at a time."""
_DRAIN_S = 30.0
_IDLE_SETTLED_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of each there is in a run."""

    messages: int = 300_000
    single_messages: int = 2000
    lone_messages: int = 5000
    records: int = 200_000
    missed_records: int = 300_000
    """Of a follower that was away."""
    sessions: int = 62_500
    idle_s: float = 10.0


QUICK = Sizes(
    messages=10_000,
    single_messages=100,
    lone_messages=1000,
    records=5000,
    missed_records=5000,
    sessions=500,
    idle_s=2.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Where the other systems are; those without a path are not measured."""

    nats: Path | None = None
    kafka: Path | None = None
    rabbitmq: Path | None = None


@dataclass
class Lab:
    """The systems under test, each started by the first case that needs it, until the block is left."""

    directory: Path
    sizes: Sizes
    programs: Programs
    sessions_per_s: float = 0.0
    """How fast those of `full_cluster` were made, one connection each."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @cached_property
    def single(self) -> System:
        folder = self.directory / "single"
        folder.mkdir()
        target = self._stack.enter_context(timestone_server(folder, "single", "synced", *_CONNECTS[2:]))
        return System(target.name, target.scheme, target.host, target.port, target.pid)

    @cached_property
    def cluster(self) -> OwnCluster:
        return self._stack.enter_context(own_cluster(self.directory / "cluster", *_CONNECTS))

    @cached_property
    def pair(self) -> OwnCluster:
        """A cluster of two nodes, which have a core each where there are two."""
        return self._stack.enter_context(own_cluster(self.directory / "pair", *_CONNECTS, nodes=2))

    @cached_property
    def written_cluster(self) -> OwnCluster:
        """A cluster whose replicas flush later."""
        folder = self.directory / "written"
        return self._stack.enter_context(own_cluster(folder, *_CONNECTS, ack="written"))

    @cached_property
    def full_cluster(self) -> OwnCluster:
        """A cluster with sessions."""
        cluster = self._stack.enter_context(own_cluster(self.directory / "sessions", *_CONNECTS))
        begun_s = time.perf_counter()
        make_sessions(cluster, self.sizes.sessions)
        self.sessions_per_s = self.sizes.sessions / (time.perf_counter() - begun_s)
        return cluster

    @cached_property
    def wide_cluster(self) -> OwnCluster:
        """A cluster of many shards, which serves no MQTT."""
        folder = self.directory / "idle"
        return self._stack.enter_context(own_cluster(folder, shards=_SHARDS, mqtt=False))

    @cached_property
    def nats(self) -> System:
        assert self.programs.nats is not None
        return self._stack.enter_context(nats_cluster(self.programs.nats, self.new_folder("nats")))

    @cached_property
    def rabbitmq(self) -> System:
        assert self.programs.rabbitmq is not None
        return self._stack.enter_context(
            rabbitmq_cluster(self.programs.rabbitmq, self.new_folder("rabbitmq"))
        )

    @cached_property
    def kafka(self) -> KafkaCluster:
        assert self.programs.kafka is not None
        return self._stack.enter_context(kafka_cluster(self.programs.kafka, self.new_folder("kafka")))

    def new_folder(self, name: str) -> Path:
        """Return a folder that does not exist: a start that failed has left one."""
        number = len(list(self.directory.glob(f"{name}*")))
        return self.directory / (f"{name}-{number}" if number else name)

    def mend(self) -> None:
        """Start nodes again that a case has killed before it failed."""
        for cluster in (vars(self).get("cluster"), vars(self).get("full_cluster")):
            for node in cluster.nodes if cluster is not None else ():
                node.start()

    def direct(self) -> System:
        """Return the cluster at the door of its leader."""
        return _at(self.cluster, self.cluster.leader())

    def direct_pair(self) -> System:
        """Return the cluster of two nodes at the door of its leader."""
        return _at(self.pair, self.pair.leader())

    def relayed(self) -> System:
        """Return the cluster at the door of another node."""
        return _at(self.cluster, self.cluster.follower())


def _at(cluster: OwnCluster, node: Node) -> System:
    others = [pid for pid in cluster.pids() if pid != node.pid]
    return System("cluster", "mqtt", *node.address, node.pid, others)


class Case(NamedTuple):
    """What is run, and the case whose figures it is compared with."""

    measure: Callable[[Lab], Figures]
    peer: str
    program: str = ""
    """The one of `Programs` that it needs."""


def _qos1(system: Callable[[Lab], System]) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        scenario = Scenario(name="fan-in", publishers=10, messages=lab.sizes.messages)
        return _run(scenario, system(lab), ["per_s", "cpu_us"])

    return measure


def _puback(system: Callable[[Lab], System]) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        scenario = Scenario(name="fan-in", publishers=1, messages=lab.sizes.single_messages, window=1)
        return _run(scenario, system(lab), ["ack_p50_us", "ack_p99_us"])

    return measure


def _puback_bare(followers: int) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        folder = lab.new_folder(f"bare-{followers}")
        p50_us, p99_us = percentiles(acknowledgements_us(folder, lab.sizes.single_messages, followers))
        return {"ack_p50_us": p50_us, "ack_p99_us": p99_us}

    return measure


def _qos1_bare(lab: Lab) -> Figures:
    return {"per_s": messages_per_s(lab.new_folder("bare-full"), lab.sizes.messages, 2, 10 * 100)}


def _lone(system: Callable[[Lab], System]) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        messages = lab.sizes.lone_messages
        scenario = Scenario(name="fan-in", publishers=_CLIENTS, messages=messages, rate=1000)
        return _run(scenario, system(lab), ["cpu_us", "own_cpu_us", "ack_p50_us"])

    return measure


def _one_each(system: Callable[[Lab], System]) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        messages = 10 * lab.sizes.lone_messages
        scenario = Scenario(name="fan-in", publishers=_CLIENTS, messages=messages, window=1)
        return _run(scenario, system(lab), ["per_s", "cpu_us", "own_cpu_us", "ack_p50_us"])

    return measure


def _run(scenario: Scenario, system: System, wanted: Sequence[str]) -> Figures:
    """Run a scenario. `cpu_us` is the processor time of all processes of the system for a message, `own_cpu_us` that of
    the server that the clients are connected to."""
    outcome = run_scenario(scenario, system)
    if outcome.faults:
        raise BenchmarkError(f"{system.name}: {outcome.faults}")
    before, after = system.readings[-2:]
    own_s = after[0] - before[0]
    figures = {**outcome.figures, "own_cpu_us": 1e6 * own_s / scenario.messages}
    return {name: figures[name] for name in wanted}


def _append(cluster_of: Callable[[Lab], OwnCluster]) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        cluster = cluster_of(lab)
        cluster.leader()
        before_s = processor_s(cluster.pids())
        taken_s = appends.append(cluster, lab.sizes.records)
        used_s = processor_s(cluster.pids()) - before_s
        return _rates(lab.sizes.records / taken_s, used_s / lab.sizes.records)

    return measure


def _append_kafka(topic: str) -> Callable[[Lab], Figures]:
    def measure(lab: Lab) -> Figures:
        before_s = processor_s(lab.kafka.pids)
        per_s = lab.kafka.append(topic, lab.sizes.records)
        return _rates(per_s, (processor_s(lab.kafka.pids) - before_s) / lab.sizes.records)

    return measure


def _rates(per_s: float, used_s: float) -> Figures:
    return {"records_per_s": per_s, "mb_per_s": per_s * appends.RECORD_BYTES / 1e6, "cpu_us": 1e6 * used_s}


def _kill(lab: Lab) -> Figures:
    leader = lab.cluster.leader()
    with publisher(lab.cluster.follower().address) as clients:
        killed_s = time.monotonic()
        leader.kill()
        pause_s = clients.longest_s(killed_s)
    leader.start()
    lab.cluster.leader()
    return {"pause_s": pause_s}


def _hand_over(lab: Lab) -> Figures:
    cluster = lab.cluster
    leader, keys = cluster.leader(), cluster.address.keys
    try:
        with publisher(cluster.follower().address) as clients:
            begun_s = time.monotonic()
            cluster.ask(
                lambda etcd: drain_node(
                    etcd, keys, leader.name, timeout_s=_DRAIN_S, progress=lambda line: None
                )
            )
            return {"pause_s": clients.longest_s(begun_s)}
    finally:
        cluster.ask(lambda etcd: undrain_node(etcd, keys, leader.name))


def _catch_up(lab: Lab) -> Figures:
    size_bytes, taken_s = appends.catch_up(lab.cluster, lab.sizes.missed_records)
    return {"mb_per_s": size_bytes / taken_s / 1e6}


def _raw_copy(lab: Lab) -> Figures:
    size_bytes = lab.sizes.missed_records * appends.RECORD_BYTES
    return {"mb_per_s": size_bytes / appends.raw_copy(lab.directory, size_bytes) / 1e6}


def _sessions(lab: Lab) -> Figures:
    return {"served_s": served_after_s(lab.full_cluster), "sessions_per_s": lab.sessions_per_s}


def _idle(lab: Lab) -> Figures:
    cluster, idle_s = lab.wide_cluster, lab.sizes.idle_s
    cluster.leader()
    time.sleep(_IDLE_SETTLED_S)
    used_s = [processor_s([node.pid]) for node in cluster.nodes]
    requests = cluster.etcd.request_count()
    time.sleep(idle_s)
    requests = cluster.etcd.request_count() - requests
    cores = [
        (processor_s([node.pid]) - before) / idle_s
        for node, before in zip(cluster.nodes, used_s, strict=True)
    ]
    memory = [Target("", "", "", 0, node.pid).rss_bytes() or 0 for node in cluster.nodes]
    return {"node_cores": max(cores), "etcd_per_s": requests / idle_s, "node_mib": max(memory) / 2**20}


CASES: Mapping[str, Case] = {
    "qos1 single": Case(_qos1(lambda lab: lab.single), "qos1 single"),
    "qos1 cluster": Case(_qos1(Lab.direct), "qos1 single"),
    "qos1 relayed": Case(_qos1(Lab.relayed), "qos1 cluster"),
    "qos1 bare": Case(_qos1_bare, "qos1 cluster"),
    "qos1 nats": Case(_qos1(lambda lab: lab.nats), "qos1 cluster", "nats"),
    "qos1 rabbitmq": Case(_qos1(lambda lab: lab.rabbitmq), "qos1 cluster", "rabbitmq"),
    "puback single": Case(_puback(lambda lab: lab.single), "puback single"),
    "puback cluster": Case(_puback(Lab.direct), "puback single"),
    "puback relayed": Case(_puback(Lab.relayed), "puback cluster"),
    "puback pair": Case(_puback(Lab.direct_pair), "puback single"),
    "puback bare": Case(_puback_bare(2), "puback cluster"),
    "puback bare single": Case(_puback_bare(0), "puback bare"),
    "puback nats": Case(_puback(lambda lab: lab.nats), "puback cluster", "nats"),
    "puback rabbitmq": Case(_puback(lambda lab: lab.rabbitmq), "puback cluster", "rabbitmq"),
    "lone single": Case(_lone(lambda lab: lab.single), "lone single"),
    "lone cluster": Case(_lone(Lab.direct), "lone single"),
    "one-each single": Case(_one_each(lambda lab: lab.single), "one-each single"),
    "one-each cluster": Case(_one_each(Lab.direct), "one-each single"),
    "append cluster": Case(_append(lambda lab: lab.cluster), "append cluster"),
    "append cluster, written": Case(_append(lambda lab: lab.written_cluster), "append cluster"),
    "append kafka, flushed": Case(_append_kafka("flushed"), "append cluster", "kafka"),
    "append kafka": Case(_append_kafka("plain"), "append cluster", "kafka"),
    "kill": Case(_kill, "kill"),
    "hand-over": Case(_hand_over, "hand-over"),
    "raw copy": Case(_raw_copy, "raw copy"),
    "catch-up": Case(_catch_up, "raw copy"),
    "sessions": Case(_sessions, "sessions"),
    "idle": Case(_idle, "idle"),
}
"""By name, in the order of the report."""
