"""Contract of a front: a plug-in that turns a network protocol into appends and readers.

Fronts are found through the entry point group `timestone.fronts`; the engine knows none of them. The command line
creates a front with the open store and the settings of the front, and starts it on its event loop."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from timestone.commit.submission import Submission
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.disk.catalog import StoredDocuments
from timestone.disk.steady_clock import SteadyClock
from timestone.log import Log
from timestone.metrics.metric import Metric
from timestone.reading.wakeups import Woken
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

ENTRY_POINT_GROUP = "timestone.fronts"


@runtime_checkable
class Front(Protocol):
    """Network protocol in front of a store."""

    name: ClassVar[str]
    """Short lower-case name, also of its table in the configuration file, and the prefix of its options and of the
    named readers that are its own: `mqtt.retained`."""

    def __init__(self, store: Store, settings: Any, *, log: logging.Logger) -> None: ...

    @classmethod
    def settings(cls) -> type[Any]:
        """Return the frozen dataclass of its settings; field metadata has `help`."""

    async def start(self) -> None:
        """Listen. On return, clients can connect."""

    async def stop(self) -> None:
        """Accept no further clients, answer what is pending and close every connection, within seconds."""

    def describe(self) -> list[str]:
        """Return lines for the start message: addresses, ack level, important limits."""

    def status(self) -> dict[str, Any]:
        """Return counters and gauges by name, ready for JSON; also before `start` and after `stop`."""


@runtime_checkable
class Reloadable(Protocol):
    """Front that can reload the files it uses without a restart."""

    async def reload(self) -> None:
        """Read the files again. Raises OSError or ValueError for an unusable one; then nothing changes."""


@runtime_checkable
class Checking(Protocol):
    """Front whose settings depend on the disk for validity."""

    @classmethod
    def check(cls, settings: Any, config: StoreConfig, existing: Mapping[str, LogConfig]) -> None:
        """Validate the settings before a store is opened or anything is created. config: of the store, with the
        settings for new logs. existing: its logs by name. Raises OSError or ValueError that names the setting or the
        file."""


@runtime_checkable
class Measured(Protocol):
    """Part of a server with metrics of known kinds: a front, or the tier."""

    def metrics(self) -> Sequence[Metric]:
        """Return the current metrics, with names that begin behind `timestone_<name of the part>_`; after `stop` the
        final ones. Called in the event loop: without a look at the disk."""


Report = Callable[[str, Mapping[str, Any]], None]
"""Takes the name of an event and its facts, ready for JSON. Called in the event loop; returns at once."""


@runtime_checkable
class Reporting(Protocol):
    """Front that reports when a client connects and when its connection has ended."""

    def report_to(self, report: Report) -> None:
        """Report from now on. The event `disconnected` has the final counts of the connection as `counts`."""


@runtime_checkable
class Administered(Protocol):
    """Front whose connections an operator can list and end. Called in the event loop."""

    name: ClassVar[str]

    def clients(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over facts and figures of the connected clients, ready for JSON, in the order of their key
        `connection`, all with the same keys. The event loop may run between two of them: a client that has gone by then
        is left out, and so is one that is new."""

    def disconnect(self, client: str, user: str | None) -> Sequence[Mapping[str, Any]]:
        """End the connections with a client id, of one user if `user` is given, and return what `clients` would have
        returned of them."""


@runtime_checkable
class Guarded(Protocol):
    """Front that checks logins and decides what a user may read. Called in the event loop."""

    name: ClassVar[str]

    @property
    def has_logins(self) -> bool:
        """Return whether its clients have users."""

    async def login(self, user: str, password: str, address: str) -> bool:
        """Return whether the password is that of the user. A failure counts as one of a client at this address."""

    def may_read(self, user: str | None, topics: Sequence[str]) -> Sequence[bool]:
        """Return for each topic or topic filter whether a user may read all of it; None: an anonymous one."""

    def client(self, client: str, user: str | None) -> Mapping[str, Any] | None:
        """Return session and subscriptions of a connected client, ready for JSON; None if it is not connected."""


@runtime_checkable
class Checked(Protocol):
    """Front that can state whether it is ready."""

    name: ClassVar[str]

    def checks(self) -> Mapping[str, str | None]:
        """Return by the name of each check the reason why it fails, or None. Called in the event loop."""


@runtime_checkable
class Operated(Protocol):
    """Front in which an operator can publish, end sessions and watch clients. Called in the event loop."""

    name: ClassVar[str]

    def end_session(self, client: str, user: str | None) -> Mapping[str, Any] | None:
        """End the session of a client for good, and its connection if it has one: its subscriptions and what waits for
        it are lost. Return `disconnected` (as `Administered.disconnect`) and `was_away`; None without such a session.
        user: of the client; without it, a session that is away is found only for an anonymous client."""

    async def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool) -> None:
        """Publish a message of the server; on return it is stored. Raises ValueError if it is refused, OSError if it
        could not be stored."""

    def retained(self, topic: str) -> Mapping[str, Any] | None:
        """Return `log`, `partition`, `offset` and `payload_bytes` of the retained message of a topic, if it has one."""

    def watch(self, client: str, user: str | None, duration_s: float) -> Sequence[Mapping[str, Any]]:
        """Report the packets of a connected client as the event `watched` for some time, without payloads, and return
        the rows of its connections. Raises ValueError if no event can be recorded or too many clients are watched."""


class Documents(Protocol):
    """Durable key-value spaces: what `store.documents` is."""

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None: ...
    def items(self, space: str) -> dict[str, bytes]: ...


class SharedDocuments(StoredDocuments, Protocol):
    """Documents of a shard, on all its replicas. For the leader; a put raises NotLeader once it leads no more."""

    clock: SteadyClock
    """Time that has passed while any node led."""

    def items(self, space: str, broken: list[str] | None = None) -> dict[str, bytes]: ...
    def page(
        self, space: str, after: str, limit: int, text: str = ""
    ) -> tuple[dict[str, bytes], str | None]: ...


class ClusterNode(Protocol):
    """Node of a cluster, as a front on it sees it. Every method blocks, and may be called by any thread but that of
    the node's event loop."""

    @property
    def own_logs(self) -> Collection[str]:
        """Return the logs that clients neither read nor append to."""

    def places(self, front: str) -> Mapping[str, Any]:
        """Return, ready for JSON, the addresses of a front on all nodes that run, and who leads and holds each shard:
        `{"nodes": {id: {"name", "address"}}, "shards": [{"leader", "in_sync", "replicas"}]}`."""

    def documents(self, shard: int) -> SharedDocuments:
        """Return the documents of fronts in a shard that this node leads, the same ones until it has lost it. Raises
        NotLeader, UnknownLog, OSError."""

    def make_log(self, name: str, settings: Mapping[str, Any]) -> None:
        """Make a log in all shards, unless there is one. Raises InvalidName, ValueError, TypeError, TimestoneError."""

    def configure_log(self, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change settings of a log, and return all that are set. Raises ValueError, TypeError, TimestoneError."""

    def delete_log(self, name: str) -> None:
        """Delete a log in all shards. Raises ValueError, TimestoneError."""

    def is_first(self, log: Log) -> bool:
        """Return whether no log of the same name was deleted before this one, of which documents may be left."""


@runtime_checkable
class OnEachNode(Protocol):
    """Front that serves on each node of a cluster, from the replicas there, also while other nodes lead."""

    name: ClassVar[str]
    node_logs: ClassVar[Mapping[str, Mapping[str, int]]]
    """Logs of its own in the cluster, with their settings."""

    def join(self, node: ClusterNode) -> None:
        """Serve on a node; called before `start`."""

    @property
    def advertised(self) -> str | None:
        """Return the address by which clients reach it, once it has started; None if it does not listen."""


class Door(NamedTuple):
    """Address at which clients of a front arrive."""

    address: str
    """HOST:PORT, with the actual port."""
    socket: Any
    """Listening socket of the standard library."""
    tls: Any
    """`ssl.SSLContext` for its connections; None without TLS."""
    certificate_user: Callable[[Mapping[str, Any]], str | None]
    """Returns the user in a client certificate, if the front takes it from there."""
    client_id: Callable[[bytes], str | None]
    """Returns who a client is by the first bytes that it has sent; None while more are needed. Raises ValueError for
    what is not the beginning of a connection."""
    layer: Callable[[Any], Any] | None = None
    """Returns the protocol (`asyncio.BufferedProtocol`) below that of a client (`asyncio.Protocol`), such as WebSocket:
    it passes the bytes of the front, and is the transport of the client, also of what `Replicated.admit` returns for
    it. None where the socket has those bytes."""


class Arrived(NamedTuple):
    """Client that others have accepted at a door of another node, or of this one."""

    door: int
    address: tuple[str, int]
    certificate_user: str | None
    """User in its certificate, if the front takes it from there."""
    shard: int = 0
    keep: object = None
    """Kept alive with the connection."""
    is_here: bool = False
    """Whether the door is one of this node."""
    descriptor: int = -1
    """Of a socket that carries only what the client sends and receives, in clear; -1 where TLS or another layer is
    between."""


class TopicNumbers(Protocol):
    """Names of topics by number: the dictionary of a log, or what stands for it where its leader is elsewhere."""

    def __len__(self) -> int: ...
    def find(self, name: str) -> int | None: ...
    def add_all(self, names: Sequence[str]) -> npt.NDArray[np.uint32]: ...


class Appendable(Protocol):
    """Log as publishes see it: one of this store, or one whose leader is another node. See `timestone.log.Log`."""

    @property
    def key(self) -> str: ...
    @property
    def topics(self) -> TopicNumbers: ...
    def topic_id(self, topic: str) -> int: ...
    def append_now(self, write_batch: WriteBatch, woken: list[Woken] | None = None) -> range | None: ...
    def submit(
        self,
        write_batch: WriteBatch,
        *,
        ack: Ack | str,
        done: Callable[[Submission], None] | None = None,
        woken: list[Woken] | None = None,
    ) -> Submission: ...


class Correspondent(Protocol):
    """Front of another home that has sent a message."""

    @property
    def is_open(self) -> bool:
        """Return whether its connection has not ended."""

    def send(self, data: bytes) -> None:
        """Answer on the connection of its message. Dropped when that has ended."""


class Partitions(Protocol):
    """Division of topics and clients into the shards of a cluster, as a front sees it that serves the clients of one
    shard, its home. Partition k of each log is in shard k, whose leader may be another node."""

    home: int
    count: int

    def of_topic(self, topic: str) -> int:
        """Return the shard of a topic."""

    def of_filter(self, pattern: str) -> int | None:
        """Return the shard of all topics that match a filter; None if they may be in several."""

    def of_client(self, client_id: str) -> int:
        """Return the home of a client."""

    def appendable(self, log: Log) -> Appendable:
        """Return where records for a partition of this store go that another shard has."""

    def documents(self, shard: int) -> "Documents":
        """Return what the front has stored of another shard, as far as this node knows. Reads the disk. Nothing can be
        put there."""

    def connection(self, shard: int) -> object | None:
        """Return the connection to the home of another shard, another object after each change of one of both; None
        without one."""

    def tell(self, shard: int, data: bytes) -> None:
        """Send a message to the front of another shard, which `Replicated.heard` gets if it serves. Messages of a
        connection arrive in order; those that are under way when it ends are lost."""

    def listen(self, answered: Callable[[int, bytes], None]) -> None:
        """Have a function called with shard and data of each answer."""

    @property
    def lags(self) -> bool:
        """Return whether records of this home are in a log of another shard, and not yet in the copy of this node."""


@runtime_checkable
class Replicated(Protocol):
    """Front that can serve from the replicated state of a cluster: the clients of each shard on the node that leads it.
    Those that arrive at the doors of another node are passed on. Called in the event loop, in this order: `open_doors`,
    then for each shard `lead` and `leave` or `lose` any number of times, then `close_doors`."""

    name: ClassVar[str]

    @property
    def log_names(self) -> Sequence[str]:
        """Return the logs that it appends to."""

    def open_doors(self) -> None:
        """Bind all addresses, so that clients may wait there. Raises OSError, ValueError."""

    @property
    def doors(self) -> Sequence[Door]:
        """Return the open doors. While the front does not lead, or with several shards, others accept from their
        sockets."""

    async def lead(
        self,
        documents: Documents,
        clock: SteadyClock,
        *,
        will_grace_s: float,
        partitions: Partitions | None = None,
    ) -> None:
        """Serve clients from these documents, which hold what an earlier leader has put. clock: by which sessions and
        wills end. will_grace_s: time for clients of that leader to come back before their wills are published.
        partitions: of a cluster with several shards, for the clients of its home. Raises OSError, ValueError."""

    def client_count(self, shard: int = 0) -> int:
        """Return how many clients of a shard are connected, through this node or another one."""

    async def leave(self, shard: int = 0) -> None:
        """Serve no more, in order: settle what was received, store the state, and have clients connect again."""

    def lose(self, shard: int = 0) -> None:
        """Serve no more, at once: another node leads. Nothing more is stored or acknowledged."""

    def admit(self, client: Arrived) -> Any:
        """Return the protocol (`asyncio.BufferedProtocol`) of a client; None if it cannot be served now."""

    def heard(self, shard: int, home: int, data: bytes, correspondent: Correspondent) -> None:
        """Handle a message for the front of a shard, from that of another home."""

    def close_doors(self) -> None:
        """Listen no more."""
