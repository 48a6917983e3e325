"""Protocols of the log and the store for upkeep. Implemented by `timestone.log.Log` and `timestone.store.Store`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from timestone.config import LogConfig, StoreConfig
from timestone.disk.catalog import Catalog
from timestone.disk.files import Files
from timestone.disk.steady_clock import SteadyClock
from timestone.errors import LogFailed
from timestone.format.topics import TopicDictionary
from timestone.reading.named_readers import NamedReaders
from timestone.reading.remote_history import RemoteHistory
from timestone.segment import Segment
from timestone.upkeep.segment_rewrites import Rewrites, RewritingStore, RewrittenLog
from timestone.upkeep.tier import Tier


class BackgroundPass(Protocol):
    """Background work on a log, scheduled by `expect` on the thread of `Maintenance`."""

    def expect(self) -> None: ...


class UpkeptLog(RewrittenLog, Protocol):
    """Log whose sealed segments are deleted, compressed, compacted and verified."""

    id: int
    name: str
    partition: int
    folder: Path
    topics: TopicDictionary
    config: LogConfig
    named_readers: NamedReaders

    @property
    def rewrites(self) -> Rewrites: ...
    @property
    def compression(self) -> BackgroundPass: ...
    @property
    def compaction(self) -> BackgroundPass: ...
    @property
    def history(self) -> RemoteHistory | None: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def local_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def failure(self) -> LogFailed | None: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def growing_base(self) -> int | None: ...
    @property
    def unsealed_bytes(self) -> int: ...

    def roll(self) -> None: ...
    def attach_history(self, history: RemoteHistory | None) -> None: ...
    def remember(self) -> None: ...
    def drop(self, segments: Sequence[Segment]) -> None: ...
    def read_compacted(self, end_offset: int) -> None: ...


class UpkeptStore(RewritingStore, Protocol):
    """Parts that the logs of a store share."""

    files: Files
    config: StoreConfig
    tier: Tier | None
    documents: Catalog
    steady_clock: SteadyClock
    now_us: Callable[[], int]

    def note_time(self, *, at_once: bool = False) -> None: ...
    def log_names(self, *, server: bool = ...) -> list[tuple[str, int]]: ...
    def log(self, name: str, partition: int = 0, *, create: bool = True) -> UpkeptLog: ...
