"""One segment, written: the pair of files that takes the appends of a log until it is sealed.

What belongs here: the order of system calls that makes an append all or nothing, the preallocation of both
files, checkpoints, and sealing. It knows no log; the log's write lock is held by the caller of every method
but `flush` and `seal_files`.

The order in which the two files are written does not matter for safety, because an entry is believed only if
its own crc and that of its bytes hold. Index space is reserved before any byte is written, so a full disk is
noticed while there is nothing to take back."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import Checkpoint, IndexHeader, Trailer
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.writing.sealing import seal_in_place, seal_index
from timestone.writing.write_batch import Draft

_RESERVE_FIRST_BYTES = 64 * 1024
_RESERVE_MOST_BYTES = 1024 * 1024
"""More at once would be more that a single flush has to carry."""
_RESERVE_AHEAD_BYTES = 16 * 1024 * 1024
"""Of index at most, when a flush begins: what comes during one of 64 MiB, in records of 100 bytes."""
_ZEROS = bytes(256 * 1024)
"""As much at once gets as large a block of the page cache. In larger ones each write of a few entries takes longer, and
smaller ones are more calls."""
_AHEAD_FIRST_BYTES = 1024 * 1024
"""Smaller segments get no blocks ahead: a store with many idle logs does not pay for busy ones."""
_AHEAD_MOST_BYTES = 64 * 1024 * 1024
_AHEAD_SHARE = 8
"""Blocks are allocated ahead while this many times as much is free, so nobody meets a full disk because of it."""
_NEVER = 1 << 63
RESERVE_OFFSETS = 1 << 22
"""How far the reserve ceiling is ahead of the log: one more fdatasync for this many records, and the size of
the jump after a power loss. A fourth of it has to last for as long as a flush takes."""
_CEILING_LOW_OFFSETS = RESERVE_OFFSETS * 3 // 4
"""With so many left, a flush that happens anyway raises it. Of records that are small, this many come between two."""


class HalfWritten(Exception):
    """Index entries of an append that failed could not be taken back; the segment takes no more appends."""


class FailedFlush(Exception):
    """An fdatasync failed: nobody knows what the disk holds, and asking again proves nothing."""


def remove_unborn(files: Files, index_path: Path, segment_path: Path) -> None:
    """Remove the files of a segment that never held a record, as far as they are there. Raises OSError."""
    # The index first: a segment without one never held a record, an index without a segment may have.
    for path in (index_path, segment_path):
        with suppress(FileNotFoundError):
            files.unlink(path)


class SegmentWriter:
    """Appends to a pair of files that this process created. Never appends to a segment of a previous
    process."""

    def __init__(self, files: Files, folder: Path, header: IndexHeader, *, suffix: str = "") -> None:
        """Creates the files durably: when it returns, a power loss keeps their names. Raises OSError and
        leaves nothing. With a `suffix` nobody finds them before `take_name`."""
        self.header = header
        self.base_offset = header.base_offset
        self.seal = EntrySeal(header.log_id, header.base_offset)
        self.index_path = names.with_suffix(names.index_path(folder, header.base_offset), suffix)
        self.segment_path = names.with_suffix(names.segment_path(folder, header.base_offset), suffix)
        self.count = 0
        self.size_bytes = 0
        self.checkpoint = Checkpoint(1, 0, 0, header.base_offset + RESERVE_OFFSETS)
        self.synced_count = 0
        self._is_cut = False
        self._files = files
        self._is_plain = type(files) is Files  # tests put others in its place, which see each system call
        self._folder = folder
        self._durable_ceiling = self.checkpoint.ceiling
        self._allocated = 0
        self._reserved = 0
        self._ahead = _AHEAD_FIRST_BYTES
        self._flushing = False
        self._segment_fd = -1
        self._index_fd = -1
        with self._undone_on_error():
            self._segment_fd = self._created(self.segment_path)
            self._index_fd = self._created(self.index_path)
            self._reserve(1)
            page = header.encode().ljust(HEADER_BYTES, b"\0")
            files.write_all(self._index_fd, page, 0)
            self._write_checkpoint(self.checkpoint)
            files.fdatasync(self._index_fd)
            files.sync_directory(folder)
        self._durable_sequence = self.checkpoint.sequence

    def _created(self, path: Path) -> int:
        try:
            return self._files.create(path)
        except FileExistsError:
            # No segment begins at the end of the log: an earlier try failed, and could not be undone either.
            self._files.unlink(path)
            return self._files.create(path)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(OSError):  # then the next try does it
                # Both, also without a descriptor: Ctrl-C may have come before it was put down.
                remove_unborn(self._files, self.index_path, self.segment_path)
            self.close()
            raise

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    def write(self, stored: StoredBytes, entries: bytes) -> None:
        """Write records and their entries behind the last ones; they count once this returns.

        On OSError nothing counts and the next write goes over what was left behind. Raises HalfWritten (from
        an OSError) when entries that may look valid could not be taken back."""
        added = len(entries) // ENTRY_BYTES
        self._reserve(self.count + added)
        end_bytes = self.size_bytes + stored.size_bytes
        if end_bytes > self._ahead and not self._flushing:
            self._allocate_ahead(end_bytes)
        self._files.write_pieces(self._segment_fd, stored.pieces, stored.size_bytes, self.size_bytes)
        at = entry_position(self.count)
        try:
            self._files.write_all(self._index_fd, entries, at)
        except OSError as error:
            self._take_back(len(entries), at, error)
            raise
        self.count += added
        self.size_bytes += stored.size_bytes

    def write_draft(self, draft: Draft, timestamp_us: int) -> bytes:
        """Write the records of a draft and their entries, which it returns. See `write`."""
        entries = self.write_prepared(draft, timestamp_us)
        return self._write_with_entries(draft, timestamp_us) if entries is None else entries

    def write_prepared(self, draft: Draft, timestamp_us: int) -> bytes | None:
        """As `write_draft` if that takes two writes to files that are there and nothing else; None: nothing has
        happened. There has to be room in the index, none to be made for the records, and readers may be shown them."""
        count, size_bytes = self.count + draft.count, self.size_bytes + draft.size_bytes
        index_position = HEADER_BYTES + self.count * ENTRY_BYTES
        if (
            index_position + draft.count * ENTRY_BYTES > self._reserved
            or size_bytes > self._ahead
            or self.base_offset + count > self._durable_ceiling
        ):
            return None
        if not self._is_plain:
            return self._write_with_entries(draft, timestamp_us)
        entries, whole = loops.write_records(
            self._segment_fd,
            self._index_fd,
            draft.stored.pieces,
            draft.lengths,
            draft.topic_ids,
            draft.header_lengths,
            draft.flags,
            position=self.size_bytes,
            timestamp_us=timestamp_us,
            ordinal=self.count,
            salt_crc=self.seal.salt_crc,
            index_position=index_position,
            data_crcs=draft.crcs,
        )
        if whole:
            self.count, self.size_bytes = count, size_bytes
        else:
            # First: if the records are there and cannot be written again, their entries would be believed.
            self._take_back(len(entries), index_position)
            self.write(draft.stored, entries)
        return entries

    def _take_back(self, size_bytes: int, position: int, cause: OSError | None = None) -> None:
        """Write zeros over entries that may be whole: a later recovery, or another process, would believe them. Raises
        HalfWritten."""
        try:
            self._files.write_all(self._index_fd, bytes(size_bytes), position)
        except OSError as error:
            raise HalfWritten(f"index entries from offset {self.end_offset} on") from cause or error

    def _write_with_entries(self, draft: Draft, timestamp_us: int) -> bytes:
        entries = draft.entries(
            self.seal, ordinal=self.count, position=self.size_bytes, timestamp_us=timestamp_us
        )
        self.write(draft.stored, entries)
        return entries

    def take_name(self) -> None:
        """Give the flushed files the names of a segment, durably, in the place of any that have them."""
        segment_path = names.segment_path(self._folder, self.base_offset)
        index_path = names.index_path(self._folder, self.base_offset)
        self._files.rename(self.segment_path, segment_path)
        # Durable by itself: this segment has what the index in its place says, which may be more than the disk has of
        # the one that it replaces.
        self._files.sync_directory(self._folder)
        self._files.rename(self.index_path, index_path)
        self._files.sync_directory(self._folder)
        self.segment_path, self.index_path = segment_path, index_path

    def raise_ceiling(self, end_offset: int) -> None:
        """Make it durable that readers may see offsets below `end_offset`. Call before they do. Raises
        FailedFlush."""
        if end_offset <= self._durable_ceiling:
            return
        try:
            self._raise_checkpoint(end_offset + RESERVE_OFFSETS)
            self._files.fdatasync(self._index_fd)
        except OSError as error:
            raise FailedFlush(f"{self.index_path}: {error}") from error
        self._note_durable(self.checkpoint)

    def prepare_flush(self) -> None:
        """Do ahead what an append would have to wait for: the flush that follows carries a higher ceiling along, and
        index space for what comes meanwhile is there before it begins. Raises OSError, after which the checkpoint in
        the file is not to be trusted."""
        if self._durable_ceiling - self.end_offset < _CEILING_LOW_OFFSETS:
            self._raise_checkpoint(self.end_offset + RESERVE_OFFSETS)
        ahead = min(self._reserved, _RESERVE_AHEAD_BYTES)
        if 2 * entry_position(self.count) > self._reserved and self._allocated - self._reserved < ahead // 2:
            with suppress(OSError):  # then the append that needs it says so
                self._allocate(self._reserved + ahead)

    def flush(self, count: int) -> None:
        """Fdatasync both files; the first `count` records are durable when it returns.

        This is where an acknowledged record reaches the disk. Called by one thread at a time, while others
        may write. Raises OSError; after one, no later success means anything for this segment."""
        checkpoint, size_bytes = self.checkpoint, self.size_bytes
        if (
            size_bytes >= _AHEAD_FIRST_BYTES
            and self._ahead - size_bytes < min(size_bytes, _AHEAD_MOST_BYTES) // 2
        ):
            self._allocate_ahead(size_bytes)
        self._flushing = True
        try:
            self._files.fdatasync_both(self._segment_fd, self._index_fd)
        finally:
            self._flushing = False
        self._note_durable(checkpoint)
        self.synced_count = count

    def note_synced(self, count: int, size_bytes: int) -> None:
        """Write down what has been flushed, for recovery and for readers in other processes. Reaches the disk
        with the next flush, so it never claims more than the disk has."""
        self._next_checkpoint(count, size_bytes, self.checkpoint.ceiling)

    def cut(self, end_offset: int) -> None:
        """Keep the records below `end_offset`, one at least, which are durable: another segment has what comes behind
        them. Raises OSError; nothing has changed then."""
        count = end_offset - self.base_offset
        raw = self._files.pread(self._index_fd, ENTRY_BYTES, entry_position(count - 1))
        last = np.frombuffer(raw, dtype=ENTRY)[0]
        self.count = self.synced_count = count
        self.size_bytes = int(last["position"]) + int(last["length"])
        self._is_cut = True

    def seal_files(self, now_us: int) -> Trailer:
        """Flush and seal a segment that takes no more appends and has at least one record.

        When it returns the sealed segment is durable; on OSError it is as unsealed as before and can be tried
        again."""
        self._ahead = _NEVER
        # Drop what a failed append left behind the last record; but what was cut off may just be read.
        size_bytes = self._files.size(self._segment_fd) if self._is_cut else self.size_bytes
        self._files.truncate(self._segment_fd, size_bytes)
        if self.synced_count < self.count:  # else only what counts for nothing is not durable
            self.flush(self.count)
        if self._is_cut:
            # Behind its last entry are those that another segment has now. They stay whole until they are gone.
            return seal_index(
                self._files,
                self.header,
                self._folder,
                count=self.count,
                segment_bytes=self.size_bytes,
                last=self.checkpoint,
                now_us=now_us,
            )
        self._next_checkpoint(self.count, self.size_bytes, max(self.checkpoint.ceiling, self.end_offset))
        return seal_in_place(
            self._files,
            self._index_fd,
            self.header,
            count=self.count,
            segment_bytes=self.size_bytes,
            now_us=now_us,
        )

    def close(self) -> None:
        for fd in (self._segment_fd, self._index_fd):
            if fd >= 0:
                self._files.close(fd)
        self._segment_fd = self._index_fd = -1

    def remove_empty(self) -> None:
        """Delete the pair of a segment that never got a record."""
        assert self.count == 0
        self.close()
        remove_unborn(self._files, self.index_path, self.segment_path)

    def _next_checkpoint(self, count: int, size_bytes: int, ceiling: int) -> None:
        # A slot that has not been flushed yet is written again in its place, so one of the two is whole on
        # the disk always.
        step = 1 if self.checkpoint.sequence == self._durable_sequence else 2
        self._write_checkpoint(Checkpoint(self.checkpoint.sequence + step, count, size_bytes, ceiling))

    def _raise_checkpoint(self, ceiling: int) -> None:
        self._next_checkpoint(self.checkpoint.entry_count, self.checkpoint.segment_bytes, ceiling)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        slot = checkpoint.encode(self.header.log_id, self.base_offset)
        self._files.write_all(self._index_fd, slot, checkpoint.position)
        self.checkpoint = checkpoint  # not before: a flush that begins now may note it as durable

    def _note_durable(self, checkpoint: Checkpoint) -> None:
        self._durable_sequence = max(self._durable_sequence, checkpoint.sequence)
        self._durable_ceiling = max(self._durable_ceiling, checkpoint.ceiling)

    def _reserve(self, count: int) -> None:
        """Have zeroed space for `count` entries: grows by 64 KiB, then doubling, then by 1 MiB.

        From the second step on the zeros are written, too. In blocks that are only reserved, each flush of entries
        would have to note in the metadata of the file that they are written now; so one flush a step does
        (docs/performance.md)."""
        needed = entry_position(count)
        if needed <= self._reserved:
            return
        start = self._reserved
        step = min(max(start, _RESERVE_FIRST_BYTES), _RESERVE_MOST_BYTES)
        end = start + step * -(-(needed - start) // step)
        if end > self._allocated:
            self._allocate(end)
        if start:
            for position in range(start, end, len(_ZEROS)):
                self._files.write_all(self._index_fd, _ZEROS[: end - position], position)
        self._reserved = end

    def _allocate(self, end: int) -> None:
        self._files.reserve(self._index_fd, self._allocated, end)
        self._allocated = end

    def _allocate_ahead(self, from_bytes: int) -> None:
        """Give a segment that has grown large its next blocks, as many as it has and 64 MiB at most: a pwrite that
        finds them takes two thirds of the time. Never more than a hint.

        Best done when a flush begins. During one it would wait for that, and a write with it."""
        step = min(from_bytes, _AHEAD_MOST_BYTES)
        try:
            if self._files.free_bytes(self._folder) >= _AHEAD_SHARE * step:
                self._files.allocate_ahead(self._segment_fd, self.size_bytes, from_bytes + step)
            self._ahead = from_bytes + step
        except OSError:
            self._ahead = _NEVER  # not on this file system, or not now
