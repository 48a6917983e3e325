"""Where the sink stages and posts records: in the folder of a store, or at a server."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import timestone
from pyspark_timestone.flight.remote_spool import RemoteSpool
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from timestone.spool.format import Frame, Posting
from timestone.spool.producer import SpoolProducer
from timestone.upkeep.stored_settings import settings_of_logs


class OpenPart(Protocol):
    """Frames that are being staged for one log."""

    @property
    def names(self) -> list[str]: ...
    def add(self, frame: Frame, /) -> None: ...


class Spool(Protocol):
    """Staging and posting; `timestone.spool.producer` has the contracts."""

    @property
    def open_parts_most(self) -> int: ...
    def record_bytes(self) -> Mapping[LogPartition, int]: ...
    def new_part(self, group: str, log: LogPartition) -> AbstractContextManager[OpenPart]: ...
    def post(self, posting: Posting, *, timeout_s: float, begins: bool) -> None: ...
    def discard(self, parts: Iterable[tuple[LogPartition, str]]) -> None: ...
    def discard_group(self, group: str) -> None: ...


def spool_of(target: Path | FlightServer) -> Spool:
    """Return the spool of a store, or of a server."""
    return StoreSpool(target) if isinstance(target, Path) else RemoteSpool(target)


class StorePart(NamedTuple):
    """Part in the folder of a store."""

    names: list[str]
    add: Callable[[Frame], None]


class StoreSpool:
    """Spool in the folder of a store."""

    open_parts_most = 100
    """Maximum files that a task has open."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._producer = SpoolProducer(store, timestone.open)
        self.discard_group = self._producer.discard_group

    def record_bytes(self) -> Mapping[LogPartition, int]:
        """Return the most bytes of a record, of the logs that exist."""
        settings = settings_of_logs(self._store)
        return {LogPartition(*log): config.record_bytes for log, config in settings.items()}

    @contextmanager
    def new_part(self, group: str, log: LogPartition) -> Iterator[StorePart]:
        """Open a part for the block to write to, and flush it behind the block."""
        with self._producer.new_part(group) as part:
            yield StorePart([part.name], part.add)

    def post(self, posting: Posting, *, timeout_s: float, begins: bool) -> None:
        """Post, and return when the records are durable in the log. begins: without effect, since the numbers of a
        producer in a folder are not forgotten."""
        self._producer.post(posting, timeout_s=timeout_s)

    def discard(self, parts: Iterable[tuple[LogPartition, str]]) -> None:
        """Remove parts that will not be posted."""
        self._producer.discard(name for _, name in parts)
