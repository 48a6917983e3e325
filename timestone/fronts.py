"""Contract of a front: a plug-in that turns a network protocol into appends and readers.

Fronts are found through the entry point group `timestone.fronts`; the engine knows none of them. The command line
creates a front with the open store and the settings of the front, and starts it on its event loop."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from timestone.config import LogConfig, StoreConfig
from timestone.metrics.metric import Metric
from timestone.store import Store

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
