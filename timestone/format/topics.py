"""The topic dictionary of a log: names in id order, append-only.

    0    512  header page: identity of the log, see `identity.py`
    512   .  entries, one for each id from 0: crc u32, length u16, name (UTF-8); length 0 for an id whose name is lost

The crc covers (log id u64, id u32, length u16, name), so an entry is only valid in its own place. A damaged
name costs that name: the next valid entry is found again by its crc. An id is never given to a second name,
even when its name is lost.

The file is never mapped, so a torn tail may be truncated. New names are written before the index entries that
use them and flushed before the index is, so no synced record lacks its topic."""

import errno
import struct
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from timestone.disk.files import Files
from timestone.errors import CorruptLog, TopicLimit, UnknownLog
from timestone.filters import TOPIC_BYTES_MAX, validate_topic, validate_topics
from timestone.format.failed_fsync_marker import copy_anew
from timestone.format.identity import HEADER_BYTES, LogIdentity
from timestone.format.names import TEMPORARY_SUFFIX
from timestone.kernel import loops
from timestone.kernel.entries import NO_TOPIC
from timestone.kernel.loops import crc32c

_ENTRY = struct.Struct("<IH")
_ENTRY_MOST_BYTES = _ENTRY.size + TOPIC_BYTES_MAX
_READ_BYTES = 1 << 20
_RESYNC_BYTES = 16 * 1024
_RESYNC_IDS = 1024
_RESYNC_NAME_BYTES = 4096
"""Limits of the search for the next valid name after a damaged one: its distance, the number of lost names and its
length. Finds a way through two damaged pages of short names within a second."""


def create_topics_file(files: Files, path: Path, identity: LogIdentity) -> None:
    """Write an empty dictionary, atomically and flushed; the caller syncs the directory. Replaces what an earlier
    try left."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    files.discard(temporary)
    files.write_file(temporary, identity.encode())
    files.rename(temporary, path)


class NamesWatcher(Protocol):
    """Cache of ids that must not outlive their names. Implemented by `reading.topic_mask.TopicMask`."""

    def names_removed(self, count: int) -> None:
        """Forget the ids from `count` on, whose names are still there."""


class TopicDictionary(loops.AssignedTopics):
    """Names by id and ids by name. Reading needs no lock; any thread may call `add`.

    The owner of the store adds names. They reach the file with `write_added`, which the writer of the log calls
    before it writes entries. Other processes call `refresh`."""

    def __init__(
        self,
        files: Files,
        path: Path,
        *,
        writable: bool = False,
        limit: int = NO_TOPIC,
        limit_bytes: int | None = None,
        known: LogIdentity | None = None,
    ) -> None:
        """Read the whole file.

        limit, limit_bytes: maximum number of names and of their bytes that `add` accepts; a file with more is read
        all the same. known: identity of the log by its other files, for a damaged header page or that of another log.
        Raises OSError, CorruptLog, UnsupportedFormat."""
        self.damaged_header = False
        self.path = path
        self.torn_bytes = 0
        """Bytes after the last valid entry: a name that was being written when the process or the system stopped."""
        self._files = files
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._fd: int | None = files.open(path, write=writable)
        self._names = []
        self.ids = loops.NumberedNames()
        self._name_bytes = 0
        self._lock = threading.Lock()
        self.is_cut = False
        """Whether names may be removed: only in a replicated log."""
        self._watched: weakref.WeakSet[NamesWatcher] = weakref.WeakSet()
        self.written_count = 0
        self.end_position = HEADER_BYTES
        """End of the last valid entry in the file."""
        self.unsynced = writable
        """Whether `sync` has something to flush. Names of a killed owner may be in the page cache only, so the first
        sync flushes."""
        self._synced: tuple[int, int] | None = None
        """Number of durable names and their end position; None before the first sync."""
        try:
            self.identity = self._read_identity(known)
            self._salt_crc = crc32c(self.identity.log_id.to_bytes(8, "little"))
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """Return the number of assigned ids."""
        return len(self._names)

    def name(self, topic_id: int) -> str | None:
        """Return the name of an id; None for NO_TOPIC, an unknown id or a lost name."""
        return self._names[topic_id] if 0 <= topic_id < len(self._names) else None

    @property
    def by_id(self) -> list[str | None]:
        """Return the names in order of id: the internal list, which grows. Read only."""
        return self._names

    def names(self, start: int = 0) -> list[str | None]:
        """Return the names of the ids from `start` on."""
        return self._names[start:]

    def find(self, name: str) -> int | None:
        """Return the id of a name; None if it has none."""
        return self.ids.find(_plain(name))

    @property
    def lost_count(self) -> int:
        """Return the number of ids whose name is damaged."""
        return self._names.count(None)

    def add(self, name: str) -> int:
        """Return the id of a name, assigning one if needed; in memory until the next write of the log. Raises
        InvalidName, or TopicLimit if the number or the bytes of names would exceed the limit."""
        if type(name) is not str:
            name = _plain(name)
        known = self.ids.find(name)
        if known is not None:
            return known
        validate_topic(name)
        with self._lock:
            known = self.ids.find(name)
            if known is not None:
                return known
            size_bytes = len(name.encode())
            self._check_limits_locked(1, size_bytes)
            self._name_bytes += size_bytes
            self._names.append(name)
            self.ids.add(name, len(self._names) - 1)
            return len(self._names) - 1

    def add_all(self, names: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the ids of many names in order, u32 (n,); see `add`. If one is refused, none is added."""
        wanted = tuple(names)
        ids = self.ids.find_all(wanted)
        if ids is None:
            if set(map(type, wanted)) != {str}:
                wanted = tuple(map(_plain, wanted))
            self._add_missing(wanted)
            ids = self.ids.find_all(wanted)
            assert ids is not None  # names are never removed
        return np.frombuffer(ids, dtype=np.uint32)

    def _add_missing(self, names: tuple[str, ...]) -> None:
        with self._lock:
            missing = [name for name in dict.fromkeys(names) if self.ids.find(name) is None]
            if not missing:
                return
            validate_topics(missing)
            size_bytes = len("".join(missing).encode())
            self._check_limits_locked(len(missing), size_bytes)
            first = len(self._names)
            self._names += missing
            self._name_bytes += size_bytes
            for number, name in enumerate(missing, first):
                self.ids.add(name, number)

    def _check_limits_locked(self, count: int, size_bytes: int) -> None:
        """Raise TopicLimit if `count` names of `size_bytes` exceed the limits."""
        if len(self._names) + count > self._limit:
            raise TopicLimit(self.identity.name, self._limit)
        if self._limit_bytes is not None and self._name_bytes + size_bytes > self._limit_bytes:
            raise TopicLimit(self.identity.name, self._limit_bytes, "bytes of topic names (topic_bytes)")

    def write_added(self) -> None:
        """Write the names added since the last call. On an error nothing changes and the next call tries again."""
        count = len(self._names)
        if count == self.written_count:
            return
        data = self.encoded(self.written_count, count)
        self._files.write_all(self._open_fd(), data, self.end_position)
        with self._lock:
            # One statement, which KeyboardInterrupt cannot split: otherwise a name would be written twice.
            self.end_position, self.written_count, self.unsynced = self.end_position + len(data), count, True

    def sync(self) -> None:
        """Flush the written names. Raises OSError, after which only `rewrite` helps."""
        if not self.unsynced:
            return
        with self._lock:
            written = self.written_count, self.end_position
        self._files.fdatasync(self._open_fd())
        with self._lock:
            self._synced = written
            self.unsynced = self.end_position > written[1]

    def rewrite(self) -> None:
        """Write the names that are not durable again and flush them, after a failed flush that may have marked
        unwritten pages as clean. Raises OSError if that fails too, or if no flush ever succeeded."""
        if not self.unsynced:
            return
        if self._synced is None:
            raise OSError(errno.EIO, "the topic dictionary was never flushed", str(self.path))
        count, end = self._synced
        data = self.encoded(count, self.written_count)
        self._files.write_all(self._open_fd(), data, end)
        self.sync()

    def copy_anew(self) -> None:
        """Replace the file by a flushed copy after a failed flush. The caller syncs the directory."""
        copy_anew(self._files, self.path, self.end_position)
        old, self._fd = self._open_fd(), self._files.open(self.path, write=True)
        self._files.close(old)
        self._synced, self.unsynced = (self.written_count, self.end_position), False

    def cut(self) -> None:
        """Cut off a torn tail, whose bytes the caller has copied."""
        self._files.truncate(self._open_fd(), self.end_position)
        self.torn_bytes = 0

    def take_up_to(self, count: int) -> None:
        """Reserve the ids below `count`, which records use although their names are lost."""
        with self._lock:
            missing = count - len(self._names)
            if missing > 0:
                self._names += [None] * missing

    def keep(self, count: int) -> None:
        """Remove the names from an id on, for a replicated log: records that used them were cut, or never written. Not
        durable before the next `sync`. Raises OSError without a change."""
        with self._lock:
            removed = range(count, len(self._names))
            if not removed:
                return
            end = HEADER_BYTES + len(self.encoded(0, count))
            if self.written_count > count:
                self._files.truncate(self._open_fd(), end)
                self.end_position, self.written_count, self.unsynced = end, count, True
                self._synced = None if self._synced is None else min(self._synced, (count, end))
            self._forget_from(count)

    def _forget_from(self, count: int) -> None:
        for mask in self._watched:
            mask.names_removed(count)
        del self._names[count:]
        self._name_bytes = sum(len((name or "").encode()) for name in self._names)
        self.ids = loops.NumberedNames()
        for number, name in enumerate(self._names):
            if name is not None:
                self.ids.add(name, number)

    def watch(self, mask: NamesWatcher) -> None:
        """Tell `mask` of removed names while it exists."""
        with self._lock:
            self._watched.add(mask)

    def abandon(self) -> None:
        """Replace the lock in a forked child, where a missing thread may hold it."""
        self._lock = threading.Lock()

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close(fd)

    def rewrite_header(self) -> None:
        """Replace a damaged header page."""
        self._files.write_all(self._open_fd(), self.identity.encode(), 0)
        self.unsynced = True
        self.damaged_header = False

    def _read_identity(self, known: LogIdentity | None) -> LogIdentity:
        try:
            found = LogIdentity.decode(self._files.pread(self._open_fd(), HEADER_BYTES, 0), self.path)
        except CorruptLog:
            if known is None:
                raise
        else:
            # The file of a log with another name and id does not make the segments those of another log.
            place = (found.name, found.partition)
            if known is None or found.log_id == known.log_id or place == (known.name, known.partition):
                return found
        self.damaged_header = True
        return known

    def follow(self) -> None:
        """Continue with the file that replaced this one, if any: recovery copies it after a failed flush. If the
        file is gone, the names read so far stay. Raises UnknownLog for the file of another log, CorruptLog."""
        try:
            if self._files.stat(self.path).st_ino == self._files.inode(self._open_fd()):
                return
            fd = self._files.open(self.path)
        except FileNotFoundError:
            return
        try:
            found = LogIdentity.decode(self._files.pread(fd, HEADER_BYTES, 0), self.path)
            # A replica that was deleted and copied again has its old id.
            if (found.log_id, found.created_us) != (self.identity.log_id, self.identity.created_us):
                raise UnknownLog(f"{self.path.parent.name} with the id {self.identity.log_id:016x}")
        except BaseException:
            self._files.close(fd)
            raise
        old, self._fd = self._open_fd(), fd
        self._files.close(old)

    def refresh(self) -> None:
        """Read the names that another process has added since; in a replicated log also those that it has written in
        the place of others."""
        fd = self._open_fd()
        if self.is_cut and self._names:
            self._forget_cut(self._files.read_all(fd, self.end_position - HEADER_BYTES, HEADER_BYTES))
        size = self._files.size(fd)
        data, at_end = b"", False
        while not at_end and len(data) < _ENTRY_MOST_BYTES:  # otherwise nothing after it is found
            position = self.end_position + len(data)
            more = self._files.pread(fd, _READ_BYTES, position) if position < size else b""
            at_end = not more
            data += more
            data = data[self._take_in(data, at_end) :]
        self.torn_bytes = max(0, size - self.end_position)
        self.written_count = len(self._names)

    def _forget_cut(self, data: bytes) -> None:
        """Forget the names from the first one on in whose place the file has another. data: where they were read; it is
        shorter while names are removed and not written again."""
        if self.encoded(0, len(self._names)).startswith(data):
            return
        end = count = 0
        while count < len(self._names) and data.startswith(name := self.encoded(count, count + 1), end):
            end, count = end + len(name), count + 1
        with self._lock:
            self._forget_from(count)
            self.end_position = HEADER_BYTES + end

    def _take_in(self, data: bytes, at_end: bool) -> int:
        """Add the names in `data`, which begins at an entry. Return the number of bytes consumed. at_end: no bytes
        follow; otherwise the last entry may be incomplete and is not consumed."""
        at = 0
        while True:
            at = self._parse(data, at)
            if not at_end and len(data) - at < _ENTRY_MOST_BYTES:
                break
            found = self._resync(data, at)
            if found is None:
                break
            damaged, at = found
            self._names += [None] * damaged
        self.end_position += at
        return at

    def _parse(self, data: bytes, at: int) -> int:
        """Add consecutive valid entries of `data` from a position on. Return their end position."""
        while (name := self._decode(data, at, len(self._names))) is not None:
            if name:
                self.ids.add(name, len(self._names))
            self._names.append(name or None)
            size_bytes = len(name.encode())
            self._name_bytes += size_bytes
            at += _ENTRY.size + size_bytes
        return at

    def _resync(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Return how many names are damaged from a position of `data` on, and the position of the next valid entry;
        None for a torn tail.

        A position is checked only if its length field is that of a name ending before the end or before another
        plausible entry, which leaves few; the tried ids are bounded by how many names fit between."""
        first = len(self._names)
        for at in range(start + _ENTRY.size, min(len(data) - _ENTRY.size, start + _RESYNC_BYTES)):
            length = data[at + 4] | data[at + 5] << 8
            if not length or at + _ENTRY.size + length > len(data) or length > _RESYNC_NAME_BYTES:
                continue
            for damaged in range(1, min(_RESYNC_IDS, (at - start) // (_ENTRY.size + 1)) + 1):
                if self._decode(data, at, first + damaged) is not None:
                    return damaged, at
        return None

    def _decode(self, data: bytes, at: int, number: int) -> str | None:
        if at + _ENTRY.size > len(data):
            return None
        crc, length = _ENTRY.unpack_from(data, at)
        name = data[at + _ENTRY.size : at + _ENTRY.size + length]
        if len(name) < length or crc != self._crc(number, name):
            return None
        return name.decode()

    def encoded(self, first: int, last: int) -> bytes:
        """Return the entries of the ids [first, last) as the file has them."""
        return loops.encoded_names(self._names[first:last], first, self._salt_crc)

    def _crc(self, number: int, name: bytes) -> int:
        return crc32c(_ENTRY.pack(number, len(name)) + name, self._salt_crc)

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        return self._fd


def _plain(name: str) -> str:
    """Return the name as a plain str: a member of an enumeration has a hash of its own."""
    if not isinstance(name, str):
        raise TypeError(f"invalid topic: expected text, got {name!r}")
    return name if type(name) is str else str.__str__(name)
