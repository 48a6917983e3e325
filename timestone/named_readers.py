"""Named readers: the offset at which a consumer goes on after a restart, kept in the store's catalogue.

What belongs here: how a committed offset is named and stored, who holds a name, and who may commit. Reading
is `reader.py`.

A commit is one durable transaction for any number of readers, so a consumer of many logs moves on in all of
them or in none. The committed offset is the *next* one to read: everything below it is done. It never points
to another record than it did, because an offset is never given out twice; after retention it may point in
front of the log, and the first read says so."""

import json
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from timestone import names
from timestone.errors import CorruptLog, ReaderInUse

if TYPE_CHECKING:
    from timestone.reader import Reader

SPACE = "readers"
"""The space of the catalogue's documents; a key is `<log>-<partition>/<name>`."""


class ReaderId(NamedTuple):
    """Which reader of which log."""

    log: str
    partition: int
    name: str

    @property
    def key(self) -> str:
        """Its key in the catalogue."""
        return f"{names.log_folder(self.log, self.partition)}/{self.name}"

    @classmethod
    def parse(cls, key: str) -> "ReaderId | None":
        """The reader of a key; None for a stranger's."""
        folder, slash, name = key.partition("/")
        log = names.parse_log_folder(folder)
        return cls(*log, name) if log and slash and name else None


@dataclass(frozen=True, slots=True)
class Commitment:
    """What a reader has committed: the next offset to read, and when (microseconds since 1970)."""

    offset: int
    committed_us: int

    def encode(self) -> bytes:
        return json.dumps({"offset": self.offset, "committed_us": self.committed_us}).encode()

    @classmethod
    def decode(cls, document: bytes, path: Path, key: str) -> "Commitment":
        """Raises CorruptLog: a catalogue that says nonsense is not guessed at."""
        try:
            values = json.loads(document)
            found = cls(int(values["offset"]), int(values["committed_us"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(path, f"what reader {key!r} has committed cannot be read: {error!r}") from error
        if found.offset < 0:
            raise CorruptLog(path, f"reader {key!r} has committed offset {found.offset}")
        return found


class Documents(Protocol):
    """The part of the catalogue that is used here."""

    path: Path

    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None: ...

    def get(self, space: str, key: str) -> bytes | None: ...

    def items(self, space: str) -> dict[str, bytes]: ...


def committed(documents: Documents, reader: ReaderId) -> Commitment | None:
    """What a reader has committed; None when it never has. Raises CorruptLog."""
    document = documents.get(SPACE, reader.key)
    return None if document is None else Commitment.decode(document, documents.path, reader.key)


def all_committed(documents: Documents) -> dict[ReaderId, Commitment]:
    """Every reader that has committed, by log and name. Raises CorruptLog."""
    found = {
        reader: Commitment.decode(document, documents.path, key)
        for key, document in documents.items(SPACE).items()
        if (reader := ReaderId.parse(key)) is not None
    }
    return dict(sorted(found.items()))


def commit(documents: Documents, offsets: Mapping[ReaderId, int], now_us: int) -> None:
    """Store offsets of readers, all or none, durable when it returns. Raises OSError; nothing has changed
    then."""
    items = {reader.key: Commitment(offset, now_us).encode() for reader, offset in offsets.items()}
    if items:
        documents.put_many(SPACE, items)


def forget(documents: Documents, readers: Iterable[ReaderId]) -> None:
    """Remove what readers have committed. Raises OSError."""
    documents.put_many(SPACE, {reader.key: None for reader in readers})


class NamedReaders:
    """The named readers of one log that are open in this process. Thread-safe."""

    def __init__(
        self,
        log: str,
        partition: int,
        committed: Callable[[ReaderId], Commitment | None],
        commit: Callable[[Mapping[ReaderId, int]], None],
    ) -> None:
        """committed: looks a reader up in the catalogue. commit: stores offsets, or raises why it may not."""
        self._log = log
        self._partition = partition
        self._commit = commit
        self._committed = committed
        # Weak: a reader that was dropped without `close` does not hold its name for ever.
        self._open: weakref.WeakValueDictionary[str, Reader] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def committed(self, name: str) -> Commitment | None:
        """What the reader of this name has committed. Raises InvalidName, OSError, CorruptLog."""
        names.validate_reader_name(name)
        return self._committed(self._id(name))

    def commit(self, name: str, offset: int) -> None:
        """Store an offset durably. Raises what `Reader.commit` does."""
        self._commit({self._id(name): offset})

    def take(self, name: str, reader: "Reader") -> None:
        """Let a reader hold a name until `release`. Raises ReaderInUse."""
        with self._lock:
            if self._open.setdefault(name, reader) is not reader:
                raise ReaderInUse(names.log_folder(self._log, self._partition), name)

    def release(self, name: str, reader: "Reader") -> None:
        with self._lock:
            if self._open.get(name) is reader:
                del self._open[name]

    def _id(self, name: str) -> ReaderId:
        return ReaderId(self._log, self._partition, name)
