"""Named readers: the offset at which a consumer continues after a restart, kept in the store's catalogue.

What belongs here: names and storage of committed offsets, which reader holds a name, and how far it is behind. Reading
is in `reader.py`, what a pin holds in `retention.py`.

A commit is one durable transaction for any number of readers, so a consumer of many logs advances on all of them or on
none. The committed offset is the *next* one to read: everything below it is done. It always refers to the same record,
because an offset is never assigned twice; after retention it may be before the start of the log, and the first read
reports that.

A consumer group is a name: the readers of that name on all the logs that it consumes. A process that does not own the
store commits as well (`StoreView.commit_readers`): the catalogue takes one writer at a time, for as long as a commit
takes."""

import json
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from timestone.disk.catalog import StoredDocuments
from timestone.disk.json_document import integer, json_object
from timestone.errors import CorruptLog, OffsetOutOfRange, ReaderInUse
from timestone.format import names
from timestone.reading.retention_hold import Pin
from timestone.record import as_whole

SPACE = "readers"
"""Namespace in the catalogue; a key is `<log>-<partition>/<name>`."""
METADATA_BYTES_MAX = 4096
"""Of the text that a commit may carry."""


class ReaderId(NamedTuple):
    """Log, partition and name of a reader."""

    log: str
    partition: int
    name: str

    @property
    def key(self) -> str:
        """Key in the catalogue."""
        return f"{names.log_folder(self.log, self.partition)}/{self.name}"

    @classmethod
    def parse(cls, key: str) -> "ReaderId | None":
        """Return the reader of a key; None for an unknown key."""
        folder, slash, name = key.partition("/")
        log = names.parse_log_folder(folder)
        return cls(*log, name) if log and slash and name else None


Metadata = Mapping[ReaderId, str]
"""Texts for the commits of some readers."""


def checked(reader: ReaderId) -> ReaderId:
    """Return the reader itself. Raises TypeError for anything else: a name alone does not identify the log."""
    if not isinstance(reader, ReaderId):
        raise TypeError(f"invalid reader: expected a ReaderId(log, partition, name), got {reader!r}")
    return reader


def checked_readers(readers: Iterable[ReaderId]) -> list[ReaderId]:
    """Return readers as a list. Raises TypeError for anything else."""
    if not isinstance(readers, Iterable):
        raise TypeError(
            f"invalid readers: expected some of ReaderId(log, partition, name), got {readers!r:.60}"
        )
    return list(map(checked, readers))


def checked_metadata(text: object) -> str:
    """Return the metadata of a commit itself. Raises TypeError, ValueError over 4 KiB in UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"invalid metadata: expected text, got {text!r:.60}")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(
            f"invalid metadata: expected valid Unicode, got {text!r:.60}: {error.reason}"
        ) from None
    if size_bytes > METADATA_BYTES_MAX:
        raise ValueError(f"invalid metadata: expected at most {METADATA_BYTES_MAX} bytes, got {size_bytes}")
    return text


@dataclass(frozen=True, slots=True)
class Commitment:
    """Commit of a reader: the next offset to read, the time (microseconds since 1970), whether retention keeps what it
    has not read, and a text of its own."""

    offset: int
    committed_us: int
    pin: Pin | None = None
    metadata: str = ""
    """What the reader noted with this commit, at most 4 KiB. Each commit replaces it."""

    def encode(self) -> bytes:
        pin = {} if self.pin is None else {"pin": asdict(self.pin)}
        noted = {"metadata": self.metadata} if self.metadata else {}
        return json.dumps({"offset": self.offset, "committed_us": self.committed_us, **pin, **noted}).encode()

    @classmethod
    def decode(cls, document: bytes, path: Path, key: str) -> "Commitment":
        """Decode a document of the catalogue. Raises CorruptLog."""
        try:
            values = json_object(document)
            pin = Pin(**values["pin"]) if "pin" in values else None
            metadata = checked_metadata(values.get("metadata", ""))
            found = cls(integer(values["offset"]), integer(values["committed_us"]), pin, metadata)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(path, f"the commit of reader {key!r} cannot be decoded: {error!r}") from error
        return found


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """Distance of a named reader from the end of its log."""

    reader: ReaderId
    committed: Commitment
    start_offset: int
    """Offset of the first record that retention has left."""
    end_offset: int
    """Next offset that the log assigns."""

    @property
    def lag(self) -> int:
        """Return how many offsets the reader has yet to read."""
        return max(0, self.end_offset - max(self.committed.offset, self.start_offset))

    @property
    def missed(self) -> int:
        """Return how many offsets retention deleted before the reader read them."""
        return max(0, self.start_offset - self.committed.offset)


class Commitments:
    """Commits of named readers."""

    def __init__(self, documents: StoredDocuments, space: str = SPACE) -> None:
        self._documents, self._space = documents, space

    def get(self, reader: ReaderId) -> Commitment | None:
        """Return the commit of a reader; None if it has none. Raises OSError, CorruptLog."""
        document = self._documents.get(self._space, checked(reader).key)
        return None if document is None else Commitment.decode(document, self._documents.path, reader.key)

    def all(self) -> dict[ReaderId, Commitment]:
        """Return the commits of all readers, by log and name. Raises OSError, CorruptLog."""
        found = {
            reader: Commitment.decode(document, self._documents.path, key)
            for key, document in self._documents.items(self._space).items()
            if (reader := ReaderId.parse(key)) is not None
        }
        return dict(sorted(found.items()))

    def put(
        self,
        offsets: Mapping[ReaderId, int],
        now_us: int,
        pin: Pin | None,
        metadata: Metadata | None = None,
    ) -> None:
        """Store offsets of readers, all or none, durable when it returns. Raises OSError, TypeError for an invalid pin,
        TypeError and ValueError for invalid metadata; nothing has changed then."""
        noted = {} if metadata is None else metadata
        if not isinstance(noted, Mapping):
            raise TypeError(f"invalid metadata: expected texts by ReaderId, got {metadata!r:.60}")
        if pin is not None and not isinstance(pin, Pin):
            raise TypeError(f"invalid pin: expected a timestone.Pin, got {pin!r}")
        items: dict[str, bytes | None] = {
            # Offsets also come from the columns of a batch, as numbers of numpy.
            reader.key: Commitment(
                operator.index(offset), now_us, pin, checked_metadata(noted.get(reader, ""))
            ).encode()
            for reader, offset in offsets.items()
        }
        if items:
            self._documents.put_many(self._space, items)

    def forget(self, readers: Iterable[ReaderId]) -> list[ReaderId]:
        """Remove the commits of readers, and return these. Raises OSError, TypeError for anything but a ReaderId."""
        forgotten = checked_readers(readers)
        self._documents.put_many(self._space, {one.key: None for one in forgotten})
        return forgotten


class Ended(Protocol):
    """Part of a log that is used here."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...


AnyLog = TypeVar("AnyLog", bound=Ended)


def check_commit(offsets: Mapping[ReaderId, int], log_of: Callable[[ReaderId], AnyLog]) -> list[AnyLog]:
    """Return the logs of readers. Raises InvalidName for an invalid name of a reader, OffsetOutOfRange for an offset
    that is not in its log, TypeError for anything but offsets by reader, and what `log_of` does."""
    logs = list(map(log_of, checked_readers(offsets)))
    if not isinstance(offsets, Mapping):
        raise TypeError(f"invalid offsets: expected a mapping of readers to offsets, got {offsets!r:.60}")
    for (reader, offset), log in zip(offsets.items(), logs, strict=True):
        names.validate_reader_name(reader.name)
        if not 0 <= as_whole(offset, "offset") <= log.end_offset:
            raise OffsetOutOfRange(offset, log.start_offset, log.end_offset)
    return logs


class ReaderStore(Protocol):
    """Part of a store, or of a view, that is used here."""

    def readers(self) -> dict[ReaderId, Commitment]: ...

    def committed(self, reader: ReaderId) -> Commitment | None: ...

    def commit_readers(
        self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None, metadata: Metadata | None = None
    ) -> None: ...


class NamedReaders:
    """Named readers of one log: their commits, and those open in this process. Thread-safe."""

    def __init__(self, log: str, partition: int, store: ReaderStore) -> None:
        self._log = log
        self._partition = partition
        self._store = store
        # Weak: a reader that was dropped without `close` does not hold its name.
        self._open: weakref.WeakValueDictionary[str, object] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def committed(self, name: str) -> Commitment | None:
        """Return the commit of the reader of this name, or None. Raises InvalidName, OSError, CorruptLog."""
        names.validate_reader_name(name)
        return self._store.committed(self._id(name))

    def all_committed(self) -> dict[ReaderId, Commitment]:
        """Return the commits of the readers of this log, by name. Raises OSError, CorruptLog."""
        mine = (self._log, self._partition)
        return {reader: found for reader, found in self._store.readers().items() if reader[:2] == mine}

    def commit(self, name: str, offset: int, pin: Pin | None, metadata: str) -> None:
        """Store an offset durably. Raises what `Reader.commit` does."""
        reader = self._id(name)
        self._store.commit_readers({reader: offset}, pin=pin, metadata={reader: metadata})

    def take(self, name: str, reader: object) -> None:
        """Let a reader hold a name until `release`. Raises ReaderInUse."""
        with self._lock:
            if self._open.setdefault(name, reader) is not reader:
                raise ReaderInUse(names.log_folder(self._log, self._partition), name)

    def release(self, name: str, reader: object) -> None:
        with self._lock:
            if self._open.get(name) is reader:
                del self._open[name]

    def _id(self, name: str) -> ReaderId:
        return ReaderId(self._log, self._partition, name)
