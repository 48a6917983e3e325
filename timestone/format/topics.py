"""The topic dictionary of a log: names in id order, append-only.

    0    512  header page: who the log is, see `identity.py`
    512   .  entries, one for each id from 0: crc u32, length u16, name (UTF-8); length 0 for an id whose name is lost

The crc covers (log id u64, id u32, length u16, name), so an entry is only valid in its own place. A damaged
name costs that name: the next valid entry is found again by its crc. An id is never given to a second name,
even when its name is lost.

The file is never mapped, so a torn tail may be truncated. New names are written before the index entries that
use them and flushed before the index is, so no synced record lacks its topic."""

import errno
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from timestone.disk.files import Files
from timestone.errors import CorruptLog, TopicLimit, UnknownLog
from timestone.filters import TOPIC_BYTES_MAX, validate_topic, validate_topics
from timestone.format.failed_fsync_marker import copy_anew
from timestone.format.identity import HEADER_BYTES, LogIdentity
from timestone.format.names import TEMPORARY_SUFFIX
from timestone.kernel import loops
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import NO_TOPIC

_ENTRY = struct.Struct("<IH")
_SALT = struct.Struct("<QIH")
_ENTRY_MOST_BYTES = _ENTRY.size + TOPIC_BYTES_MAX
_READ_BYTES = 1 << 20
_RESYNC_BYTES = 16 * 1024
_RESYNC_IDS = 1024
_RESYNC_NAME_BYTES = 4096
"""How far behind a damaged name the next whole one is looked for, how many names may be lost on the way, and
how long that one may be: two damaged pages of short names are found through, in a second at most."""


def create_topics_file(files: Files, path: Path, identity: LogIdentity) -> None:
    """Write an empty dictionary that appears whole and flushed, so that a crash never leaves half of one; the
    caller syncs the directory. What an earlier try has left is replaced."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        files.unlink(temporary)
    except FileNotFoundError:
        pass
    files.write_file(temporary, identity.encode())
    files.rename(temporary, path)


class TopicDictionary:
    """Names by id and ids by name. Reading needs no lock; `add` may be called by many threads.

    The owner of the store adds names; they reach the file with `write_added`, which the log's writer calls
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
        """Reads the whole file. `limit` is the most names that `add` lets in, `limit_bytes` the most bytes of them
        all; a file that has more is read all the same. `known` is who the log is as told by its other files, in case
        the header page is damaged.

        Raises OSError, CorruptLog or UnsupportedFormat.
        """
        self.damaged_header = False
        self.path = path
        self.torn_bytes = 0
        """Bytes behind the last valid entry: a name that was being written when the process or machine
        stopped."""
        self._files = files
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._fd: int | None = files.open(path, write=writable)
        self._names: list[str | None] = []
        self._ids = loops.NumberedNames()
        self._name_bytes = 0
        self._lock = threading.Lock()
        self._written_count = 0
        self._end = HEADER_BYTES
        self._unsynced = writable
        """What a killed owner has written may still be in the page cache only, so the first sync flushes."""
        self._synced: tuple[int, int] | None = None
        """How many names are durable and where they end; None before the first sync."""
        try:
            self.identity = self._read_identity(known)
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """How many ids are taken."""
        return len(self._names)

    def name(self, topic_id: int) -> str | None:
        """The name of an id; None for NO_TOPIC, an unknown id or a lost name."""
        return self._names[topic_id] if 0 <= topic_id < len(self._names) else None

    @property
    def by_id(self) -> list[str | None]:
        """The names in the order of their ids: the list itself, which grows. For looking at only."""
        return self._names

    def names(self, start: int = 0) -> list[str | None]:
        """The names of the ids from `start` on."""
        return self._names[start:]

    def find(self, name: str) -> int | None:
        """The id of a name, or None."""
        return self._ids.find(_plain(name))

    @property
    def lost_count(self) -> int:
        """Ids whose name is damaged."""
        return self._names.count(None)

    def add(self, name: str) -> int:
        """The id of a name, a new one when it has none yet. In memory until the log's next write.

        Raises InvalidName, or TopicLimit when the log has as many as it may, or as many bytes of them.
        """
        name = _plain(name)
        known = self._ids.find(name)
        if known is not None:
            return known
        validate_topic(name)
        with self._lock:
            known = self._ids.find(name)
            if known is not None:
                return known
            size_bytes = len(name.encode())
            self._check_limits_locked(1, size_bytes)
            self._name_bytes += size_bytes
            self._names.append(name)
            self._ids.add(name, len(self._names) - 1)
            return len(self._names) - 1

    def add_all(self, names: Sequence[str]) -> npt.NDArray[np.uint32]:
        """The ids of many names, u32 (n,), in their order; see `add`. When one is refused, none is added."""
        wanted = tuple(names)
        ids = self._ids.find_all(wanted)
        if ids is None:
            if set(map(type, wanted)) != {str}:
                wanted = tuple(map(_plain, wanted))
            self._add_missing(wanted)
            ids = self._ids.find_all(wanted)
            assert ids is not None  # names never go
        return np.frombuffer(ids, dtype=np.uint32)

    def _add_missing(self, names: tuple[str, ...]) -> None:
        with self._lock:
            missing = [name for name in dict.fromkeys(names) if self._ids.find(name) is None]
            if not missing:
                return
            validate_topics(missing)
            size_bytes = len("".join(missing).encode())
            self._check_limits_locked(len(missing), size_bytes)
            first = len(self._names)
            self._names += missing
            self._name_bytes += size_bytes
            for number, name in enumerate(missing, first):
                self._ids.add(name, number)

    def _check_limits_locked(self, count: int, size_bytes: int) -> None:
        """May so many names of so many bytes be added? Raises TopicLimit."""
        if len(self._names) + count > self._limit:
            raise TopicLimit(self.identity.name, self._limit)
        if self._limit_bytes is not None and self._name_bytes + size_bytes > self._limit_bytes:
            raise TopicLimit(self.identity.name, self._limit_bytes, "bytes of topic names (topic_bytes)")

    @property
    def has_unwritten(self) -> bool:
        """Names were added since the last `write_added`."""
        return len(self._names) != self._written_count

    def write_added(self) -> None:
        """Write the names added since the last call. On an error nothing has changed and the next call tries
        again."""
        count = len(self._names)
        if count == self._written_count:
            return
        data = self._encoded(self._written_count, count)
        self._files.write_all(self._open_fd(), data, self._end)
        with self._lock:
            # In one statement, which no interrupt can cut in two: else a name would be written twice.
            self._end, self._written_count, self._unsynced = self._end + len(data), count, True

    def sync(self) -> None:
        """Flush what was written. Raises OSError, after which only `rewrite` helps."""
        if not self._unsynced:
            return
        with self._lock:
            written = self._written_count, self._end
        self._files.fdatasync(self._open_fd())
        with self._lock:
            self._synced = written
            self._unsynced = self._end > written[1]

    def rewrite(self) -> None:
        """After a failed flush, which may have marked pages clean that never reached the disk: write the names
        that were not durable once more, and flush them. Raises OSError when the disk refuses this too, or when
        nothing is known to be durable."""
        if not self._unsynced:
            return
        if self._synced is None:
            raise OSError(errno.EIO, "the topic dictionary was never flushed", str(self.path))
        count, end = self._synced
        data = self._encoded(count, self._written_count)
        self._files.write_all(self._open_fd(), data, end)
        self.sync()

    def copy_anew(self) -> None:
        """Replace the file by a flushed copy, because what a failed flush left of it cannot be trusted. The caller
        syncs the directory."""
        copy_anew(self._files, self.path, self._end)
        old, self._fd = self._open_fd(), self._files.open(self.path, write=True)
        self._files.close(old)
        self._synced, self._unsynced = (self._written_count, self._end), False

    @property
    def end_position(self) -> int:
        """Where the last valid entry ends in the file."""
        return self._end

    def cut(self) -> None:
        """Remove a torn tail from the file. The caller has kept its bytes."""
        self._files.truncate(self._open_fd(), self._end)
        self.torn_bytes = 0

    def take_up_to(self, count: int) -> None:
        """Mark ids below `count` as taken although their names are lost, because records use them."""
        with self._lock:
            missing = count - len(self._names)
            if missing > 0:
                self._names += [None] * missing

    def abandon(self) -> None:
        """This is the copy in a forked child: a thread that there is no more may have held the lock."""
        self._lock = threading.Lock()

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._files.close(fd)

    def rewrite_header(self) -> None:
        """Put a sound header page in the place of a damaged one."""
        self._files.write_all(self._open_fd(), self.identity.encode(), 0)
        self._unsynced = True
        self.damaged_header = False

    def _read_identity(self, known: LogIdentity | None) -> LogIdentity:
        try:
            return LogIdentity.decode(self._files.pread(self._open_fd(), HEADER_BYTES, 0), self.path)
        except CorruptLog:
            if known is None:
                raise
            self.damaged_header = True
            return known

    def follow(self) -> None:
        """Go on with the file that has taken the place of this one, if there is one: a recovery copies it when it is in
        doubt. Of a file that is lost, what was read stays. Raises UnknownLog when it is another log's, CorruptLog."""
        try:
            if self._files.stat(self.path).st_ino == self._files.inode(self._open_fd()):
                return
            fd = self._files.open(self.path)
        except FileNotFoundError:
            return
        try:
            found = LogIdentity.decode(self._files.pread(fd, HEADER_BYTES, 0), self.path)
            if found.log_id != self.identity.log_id:
                raise UnknownLog(f"{self.path.parent.name} with the id {self.identity.log_id:016x}")
        except BaseException:
            self._files.close(fd)
            raise
        old, self._fd = self._open_fd(), fd
        self._files.close(old)

    def refresh(self) -> None:
        """Read the names another process has added since."""
        fd = self._open_fd()
        size = self._files.size(fd)
        data, at_end = b"", False
        while not at_end and len(data) < _ENTRY_MOST_BYTES:  # else nothing behind it is found again
            position = self._end + len(data)
            more = self._files.pread(fd, _READ_BYTES, position) if position < size else b""
            at_end = not more
            data += more
            data = data[self._take_in(data, at_end) :]
        self.torn_bytes = max(0, size - self._end)
        self._written_count = len(self._names)

    def _take_in(self, data: bytes, at_end: bool) -> int:
        """Take in the names in `data`, which begins where an entry does; returns how many of its bytes are done with.

        at_end: nothing comes behind it. Else its last entry may be the front of one, and is left alone."""
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
        self._end += at
        return at

    def _parse(self, data: bytes, at: int) -> int:
        """Take in the whole valid entries from a place of `data` on; returns where they end."""
        while (name := self._decode(data, at, len(self._names))) is not None:
            if name:
                self._ids.add(name, len(self._names))
            self._names.append(name or None)
            size_bytes = len(name.encode())
            self._name_bytes += size_bytes
            at += _ENTRY.size + size_bytes
        return at

    def _resync(self, data: bytes, start: int) -> tuple[int, int] | None:
        """How many names are damaged from a place of `data` on, and where the next valid entry lies; None for a
        torn tail.

        A place is worth a checksum only when its length field is that of a name that ends in front of the end
        or of another plausible entry, which leaves few of them; ids are tried up to how many names could have
        stood there."""
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

    def _encoded(self, first: int, last: int) -> bytes:
        """The entries of the ids [first, last)."""
        pieces: list[bytes] = []
        for number, name in enumerate(self._names[first:last], first):
            encoded = (name or "").encode()
            pieces += (_ENTRY.pack(self._crc(number, encoded), len(encoded)), encoded)
        return b"".join(pieces)

    def _crc(self, number: int, name: bytes) -> int:
        return crc32c(name, crc32c(_SALT.pack(self.identity.log_id, number, len(name))))

    def _open_fd(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        return self._fd


def _plain(name: str) -> str:
    """The name as a str itself: a member of an enumeration has a hash of its own."""
    if not isinstance(name, str):
        raise TypeError(f"a topic is text, not {name!r}")
    return name if type(name) is str else str.__str__(name)
