"""Keys of a cluster in etcd and their values, encoded and checked. `shards/<k>` is in `shard_record`."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from timestone.address import parse_address
from timestone.config import Ack, LogConfig, with_settings
from timestone.disk.json_document import integer, json_object, unknown_fields
from timestone.format.names import log_folder, validate_log
from timestone.settings_schema import COUNTED_MOST
from timestone_cluster.affinity import Arrivals
from timestone_cluster.division import check_template
from timestone_cluster.errors import UndecodableValue

ROOT = "/timestone/"
MOST_SHARDS = 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """Where the keys of one cluster are."""

    name: str

    @property
    def prefix(self) -> str:
        """Return what all keys begin with."""
        return f"{ROOT}{self.name}/"

    @property
    def cluster(self) -> str:
        """Return the key of what was decided when the cluster was made."""
        return f"{self.prefix}cluster"

    def node(self, node: str) -> str:
        """Return the key by which a running node is registered."""
        return f"{self.prefix}nodes/{node}"

    def member(self, node: str) -> str:
        """Return the key that a node leaves when it ends: the value that it was last registered with."""
        return f"{self.prefix}members/{node}"

    def leaving(self, node: str) -> str:
        """Return the key that is there while a node is to hold nothing."""
        return f"{self.prefix}leaving/{node}"

    @property
    def balancer(self) -> str:
        """Return the key of the node that places replicas at present."""
        return f"{self.prefix}balancer"

    def wanted(self, number: int) -> str:
        """Return the key that is there while the leader of a shard is to hand over; its value is the next leader."""
        return f"{self.prefix}wanted/{number}"

    def pinned(self, number: int) -> str:
        """Return the key with the nodes of a shard that was placed by command."""
        return f"{self.prefix}pinned/{number}"

    def arrivals(self, node: str) -> str:
        """Return the key with the clients of a node that runs."""
        return f"{self.prefix}arrivals/{node}"

    def near(self, number: int) -> str:
        """Return the key with the node through which most clients of a shard come in."""
        return f"{self.prefix}near/{number}"

    def shard(self, number: int) -> str:
        """Return the key of a shard."""
        return f"{self.prefix}shards/{number}"

    def placed(self, number: int) -> str:
        """Return the key that is there for good once a shard has had a record: one that is gone is not made again."""
        return f"{self.prefix}placed/{number}"

    def draining(self, node: str) -> str:
        """Return the key that is there while a node is to lead nothing."""
        return f"{self.prefix}draining/{node}"

    def log(self, name: str) -> str:
        """Return the key of a log."""
        return f"{self.prefix}logs/{name}"

    def deleted(self, name: str) -> str:
        """Return the key that is there for good once a log of this name was deleted. That `log` is missing proves
        nothing: etcd may have been restored from the past."""
        return f"{self.prefix}deleted/{name}"


CLUSTER_SETTINGS = ("balance", "replace_after_ms", "leader_pause_ms", "affinity_ms")
"""Settings of a cluster that may change: fields of `ClusterValue`."""


@dataclass(frozen=True, slots=True)
class ClusterValue:
    """What was decided when the cluster was made, and settings of all its nodes."""

    id: str
    """Random; a data folder keeps it."""
    shards: int
    replicas: int
    min_isr: int
    level: int = 1
    """Of the protocol: nodes use nothing of a later one."""
    balance: bool = True
    """Whether replicas and leaders are placed again when nodes come and go."""
    replace_after_ms: int = 15 * 60 * 1000
    """How long a node may be away before its replicas are placed elsewhere."""
    leader_pause_ms: int = 60 * 1000
    """Between two hand-overs to preferred leaders."""
    affinity_ms: int = 5 * 60 * 1000
    """How long most clients of a shard have to come in through a node before it is the preferred leader."""
    topic_keys: tuple[str, ...] = ()
    """Templates of `division`; cannot change."""
    ack: Ack = Ack.SYNCED
    """What a replica has done with a record when it counts as having it; cannot change."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Fields of later versions: ignored, and kept when the value is changed."""

    def changed(self, settings: Mapping[str, Any]) -> "ClusterValue":
        """Return the value with other settings. Raises ValueError for an invalid one."""
        for name, value in settings.items():
            if name not in CLUSTER_SETTINGS:
                raise ValueError(f"invalid setting {name!r}: expected one of {', '.join(CLUSTER_SETTINGS)}")
            wanted = "true or false" if name == "balance" else "a whole number of milliseconds"
            is_known = type(value) is type(getattr(self, name))
            if not is_known or (type(value) is int and not 0 <= value <= COUNTED_MOST):
                raise ValueError(f"invalid {name}: expected {wanted}, got {value!r}")
        return replace(self, **settings)

    def encode(self) -> bytes:
        """Return the value in etcd."""
        known = asdict(self)
        return json.dumps({"version": 1, **known.pop("others"), **known}, sort_keys=True).encode()

    @classmethod
    @functools.lru_cache(256)
    def decode(cls, value: bytes) -> "ClusterValue":
        """Return a value of etcd. Raises UndecodableValue."""

        def made(fields: dict[str, Any]) -> ClusterValue:
            shards, replicas, min_isr = (integer(fields[name]) for name in ("shards", "replicas", "min_isr"))
            level = integer(fields.get("level", 1))
            topic_keys = tuple(check_template(_text(one)) for one in fields.get("topic_keys", ()))
            ack = check_ack(fields.get("ack", Ack.SYNCED))
            numbers = shards, replicas, min_isr, level
            found = cls(
                _text(fields["id"]),
                *numbers,
                topic_keys=topic_keys,
                ack=ack,
                others=unknown_fields(fields, cls),
            )
            if not (1 <= found.shards <= MOST_SHARDS and 1 <= found.min_isr <= found.replicas):
                raise ValueError(f"expected 1 to {MOST_SHARDS} shards, and 1 <= min_isr <= replicas")
            return found.changed({name: fields[name] for name in CLUSTER_SETTINGS if name in fields})

        return _decoded(value, made)


def check_ack(value: str) -> Ack:
    """Return the level of a cluster. Raises ValueError for another one."""
    if value not in (Ack.SYNCED, Ack.WRITTEN):
        raise ValueError(f"invalid ack: expected 'synced' or 'written', got {value!r}")
    return Ack(value)


OBSERVERS_LEVEL = BEATS_LEVEL = 3
WRITTEN_LEVEL = DELETIONS_LEVEL = 4
LEVELS = 1, 4
"""Lowest and highest level of the protocol that this version speaks. 2: records of shards have `left`, and nodes delete
replicas that they shall not have any more. 3: leaders send records to observers; and one frame is the heartbeat of all
shards that two nodes share, where both offer it, at any level of the cluster. 4: clusters may be at ack level
`written`, records of shards say where offsets continue behind those that were given up, and logs are deleted."""
MOST_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A running node, or one that ran."""

    name: str
    peer: str
    """HOST:PORT at which other nodes and clients reach it."""
    zone: str = ""
    """What fails at once: replicas of a shard are in different zones while there are any."""
    weight: int = 1
    """Share of the replicas, beside the weights of others."""
    lowest_level: int = 1
    highest_level: int = 1
    fronts: Mapping[str, str] = field(default_factory=dict)
    """HOST:PORT of the fronts that serve on each node, by their name."""
    observes: bool = False
    """Whether it follows the shards in which it has no place."""
    is_behind: bool = False
    """Whether it lacks records of some shard since its start, so that it serves no clients where it leads."""
    is_full: bool = False
    """Whether its disk has too little free space for it to lead."""
    boot: str = field(default="", kw_only=True)
    """Of its machine, where a replica counts as having what is in memory only."""
    alarm: str = field(default="", kw_only=True)
    """Why replicas of it stay out, for people; empty while none does."""
    is_stopping: bool = field(default=False, kw_only=True)
    """Whether it is about to end, so that no other node waits for it to lead."""

    def encode(self) -> bytes:
        """Return the value in etcd."""
        return json.dumps({"version": 1, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    @functools.lru_cache(256)
    def decode(cls, value: bytes) -> "NodeValue":
        """Return a value of etcd. Raises UndecodableValue."""

        def made(fields: dict[str, Any]) -> NodeValue:
            zone = fields.get("zone", "")
            weight, lowest, highest = (
                integer(fields.get(name, 1)) for name in ("weight", "lowest_level", "highest_level")
            )
            fronts = {str(name): _text(one) for name, one in dict(fields.get("fronts", {})).items()}
            names = _text(fields["name"]), _text(fields["peer"]), zone and _text(zone)
            states: dict[str, Any] = {
                name: fields.get(name) is True for name in ("observes", "is_behind", "is_full", "is_stopping")
            }
            boot, alarm = (fields.get(name, "") and _text(fields[name]) for name in ("boot", "alarm"))
            found = cls(*names, weight, lowest, highest, fronts, boot=boot, alarm=alarm, **states)
            for name, address in {"peer": found.peer, **fronts}.items():
                parse_address(address, setting=name)
            if not 1 <= found.weight <= MOST_WEIGHT:
                raise ValueError(f"expected a weight of 1 to {MOST_WEIGHT}, got {found.weight}")
            return found

        return _decoded(value, made)


LOG_SETTINGS = (
    "retention_ms", "retention_bytes", "local_retention_ms", "local_retention_bytes",
    "segment_bytes", "segment_entries", "segment_age_ms",
    "compact", "tombstone_ms", "compression", "compression_level", "compression_dictionary",
)  # fmt: skip
"""Settings of a log that may be given for a cluster: fields of `timestone.LogConfig`."""


@functools.lru_cache(256)
def _config(settings: tuple[tuple[str, type, int | str], ...]) -> LogConfig:
    return with_settings(LogConfig(), {name: one for name, _, one in settings})


@dataclass(frozen=True, slots=True)
class LogValue:
    """A log."""

    settings: Mapping[str, int | str] = field(default_factory=dict)
    """Of all its replicas, where they differ from the defaults."""
    deletions: int = 0
    """How many logs of its name were deleted before: not in the value, but in a key of its own."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings of later versions: ignored, and kept when the value is changed."""

    @property
    def config(self) -> LogConfig:
        """Return the settings of a new replica."""
        # With its type: True and 1 are equal, and `compact` may be one of them only.
        return _config(tuple((name, type(one), one) for name, one in sorted(self.settings.items())))

    def changed(self, settings: Mapping[str, Any]) -> "LogValue":
        """Return the value with other settings. Raises ValueError or TypeError for an invalid one."""
        for name in settings:
            if name not in LOG_SETTINGS:
                raise ValueError(f"invalid setting {name!r}: expected one of {', '.join(LOG_SETTINGS)}")
        found = replace(self, settings={**self.settings, **settings})
        _ = found.config
        return found

    def encode(self) -> bytes:
        """Return the value in etcd."""
        return json.dumps({"version": 1, **self.others, **self.settings}, sort_keys=True).encode()

    @classmethod
    @functools.lru_cache(256)
    def decode(cls, value: bytes) -> "LogValue":
        """Return a value of etcd. Raises UndecodableValue."""

        def made(fields: dict[str, Any]) -> LogValue:
            known = {name: fields.pop(name) for name in LOG_SETTINGS if name in fields}
            return cls(others=unknown_fields(fields, cls)).changed(known)

        return _decoded(value, made)


# Logs that were deleted.

SERVER_LOGS = frozenset(("mqtt-state", "fronts-state", "flight-parts"))
"""Logs that the nodes write for themselves: what sessions, readers and producers were promised."""
MOST_DELETIONS = 100_000
"""Most deletions of logs of one name: the id of each is computed to know which of them a log is."""


def encode_deletions(count: int, before: bytes = b"{}") -> bytes:
    """Return the value of `deleted/<name>`: how many logs of the name were deleted so far. before: the value until now,
    whose other fields stay. Raises ValueError for more than MOST_DELETIONS."""
    integer(count, most=MOST_DELETIONS)
    return json.dumps({**json.loads(before), "version": 1, "count": count}, sort_keys=True).encode()


def decode_deletions(value: bytes) -> int:
    """Return how many logs of a name were deleted. Raises UndecodableValue."""
    return _decoded(value, lambda fields: integer(fields["count"], most=MOST_DELETIONS))


def deletions_before(
    log_id: int, cluster: str, name: str, partition: int, most: int = MOST_DELETIONS
) -> int | None:
    """Return how many logs of a name were deleted before the one with an id; None if it is none of the first ones, of
    which there are as many as `most`."""
    return next((one for one in range(most) if replica_id(cluster, name, partition, one) == log_id), None)


@functools.lru_cache(4096)
def replica_id(cluster: str, name: str, partition: int, deletions: int = 0) -> int:
    """Return the id of a log of a cluster. deletions: of earlier logs of the name."""
    text = f"{cluster}/{replica_name(name, partition, deletions)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def replica_name(name: str, partition: int, deletions: int = 0) -> str:
    """Return the name of a log between the replicas of its shard: what one says of a log that was deleted counts for
    nothing in a later one of the same name."""
    return counted_name(log_folder(name, partition), deletions)


def counted_name(name: str, deletions: int) -> str:
    """Return a name with the number of the log that has it, if others that had it were deleted."""
    return f"{name}@{deletions}" if deletions else name


def folder_of(known: str) -> str:
    """Return the folder of a log by its name between replicas."""
    return known.partition("@")[0]


def encode_pin(nodes: tuple[str, ...]) -> bytes:
    """Return the value of `pinned/<k>`."""
    return json.dumps(nodes).encode()


def decode_pin(value: bytes) -> tuple[str, ...]:
    """Return the nodes of a shard that was placed by command. Raises ValueError."""
    found = json.loads(value)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"invalid nodes: expected a list of ids, got {value[:200]!r}")
    return tuple(found)


def encode_arrivals(arrivals: Arrivals) -> bytes:
    """Return the value of `arrivals/<node>`."""
    fields = {"version": 1, "served": arrivals.served, "passed_on": arrivals.passed_on}
    return json.dumps(fields, sort_keys=True).encode()


def decode_arrivals(value: bytes) -> Arrivals:
    """Return the clients of a node. Raises UndecodableValue."""

    def made(fields: dict[str, Any]) -> Arrivals:
        served, passed_on = (
            {int(number): integer(count) for number, count in dict(fields[name]).items()}
            for name in ("served", "passed_on")
        )
        return Arrivals(served, passed_on)

    return _decoded(value, made)


def check_log_name(name: str) -> str:
    """Return the name of a log. Raises InvalidName."""
    validate_log(name, 0)
    return name


def _decoded(value: bytes, made: Callable[[dict[str, Any]], T]) -> T:
    try:
        fields = json_object(value)
        if fields["version"] != 1:
            raise ValueError(f"expected version 1, got {fields['version']!r}")
        return made(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise UndecodableValue(f"invalid value in etcd: {error!r} in {value[:200]!r}") from None


def _text(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= 255:
        raise ValueError(f"expected a text, got {value!r}")
    return value
