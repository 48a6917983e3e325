"""Writing side of one segment: the pair of files that takes the appends of a log until it is sealed.

Contains the order of system calls that makes an append all or nothing, preallocation, checkpoints, and sealing. Knows
no log; the caller holds the write lock of the log, except for `flush` and `seal_files`.

The order in which the two files are written does not matter for safety, because an entry is valid only if its own
checksum and that of its bytes match. Index space is reserved before any byte is written, so a full disk is detected
while nothing has to be undone."""

from contextlib import suppress
from pathlib import Path

import numpy as np

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import Checkpoint, IndexHeader, Trailer
from timestone.kernel import loops
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, HEADER_BYTES, entry_position
from timestone.kernel.entry_checksum import EntrySeal
from timestone.reading.stored_bytes import StoredBytes
from timestone.writing.sealing import SegmentFacts, seal_in_place, seal_index
from timestone.writing.write_batch import WriteBatch

_RESERVE_FIRST_BYTES = 64 * 1024
_RESERVE_MOST_BYTES = 1024 * 1024
"""More would add too much to a single flush."""
_RESERVE_AHEAD_BYTES = 16 * 1024 * 1024
"""Maximum index space reserved when a flush begins: enough for records of 100 bytes that arrive during a flush of 64
MiB."""
_ZEROS = bytes(256 * 1024)
"""A write of this size gets an equally large folio in the page cache. In larger ones each write of a few entries
takes longer; smaller ones need more calls."""
_AHEAD_FIRST_BYTES = 1024 * 1024
"""Smaller segments are not preallocated, so that a store with many idle logs does not pay for busy ones."""
_AHEAD_MOST_BYTES = 64 * 1024 * 1024
_AHEAD_SHARE = 8
"""Blocks are preallocated while this many times as much space is free, so that preallocation fills no disk."""
_NEVER = (1 << 63) - 1
RESERVE_OFFSETS = 1 << 22
"""Distance of the reserve ceiling from the end of the log: one more fdatasync for this many records, and the size of
the jump after a power loss. A quarter of it must last for the duration of a flush."""
REPLICA_RESERVE_OFFSETS = 1 << 18
"""The same of a replica, where a jump takes an entry for each offset."""
_CEILING_LOW_OFFSETS = RESERVE_OFFSETS * 3 // 4
"""With less distance left, the next flush raises the ceiling. Of small records, this many arrive between two
flushes."""


class HalfWritten(Exception):
    """Index entries of a failed append could not be removed; the segment takes no more appends."""


class FailedFlush(Exception):
    """An fdatasync failed: the state of the disk is unknown, and a second call proves nothing."""


def remove_unborn(files: Files, index_path: Path, segment_path: Path) -> None:
    """Remove the existing files of a segment that never held a record. Raises OSError."""
    # The index first: a segment file without an index never held a record, an index without a segment file may have.
    files.discard(index_path)
    files.discard(segment_path)


class SegmentWriter(loops.PreparedSegment):
    """Appends to a pair of files that this process created, or that an earlier process closed with `close_unsealed`."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        header: IndexHeader,
        *,
        suffix: str = "",
        closed: Checkpoint | None = None,
    ) -> None:
        """Create the files; their names are durable on return. Raises OSError and leaves no file.

        suffix: appended to the names until `take_name`, so that no other process finds them. closed: the checkpoint
        with which the existing files were closed; they are opened by the first call that needs them."""
        self.header = header
        self.base_offset, self.created_us = header.base_offset, header.created_us
        self.seal = EntrySeal(header.log_id, header.base_offset)
        self._salt_crc = self.seal.salt_crc
        self.index_path = names.with_suffix(names.index_path(folder, header.base_offset), suffix)
        self.segment_path = names.with_suffix(names.segment_path(folder, header.base_offset), suffix)
        self.checkpoint = closed or Checkpoint(1, 0, 0, header.base_offset + self._ceiling_offsets)
        self.count = self.synced_count = self.checkpoint.entry_count
        self.size_bytes = self.checkpoint.segment_bytes
        self._is_cut = False
        self._files = files
        self._is_plain = type(files) is Files  # test doubles must see each system call
        self._folder = folder
        self._durable_ceiling = self.checkpoint.ceiling
        self._allocated = 0
        self._reserved = 0
        self._ahead = _AHEAD_FIRST_BYTES
        self._flushing = False
        self._segment_fd = -1
        self._index_fd = -1
        # After a kill in `close_unsealed` that checkpoint may not be on the disk: the slot before it is kept.
        self._durable_sequence = self.checkpoint.sequence - 1
        if closed is None:
            self._create()

    def _create(self) -> None:
        files = self._files
        # Not a context manager made of a generator: an interrupt at its begin would have it remove the files when the
        # exception is forgotten, by which time others may have their names.
        try:
            self._segment_fd = self._created(self.segment_path)
            self._index_fd = self._created(self.index_path)
            self._reserve(1)
            page = self.header.encode().ljust(HEADER_BYTES, b"\0")
            files.write_all(self._index_fd, page, 0)
            self._write_checkpoint(self.checkpoint)
            files.fdatasync(self._index_fd)
            files.sync_directory(self._folder)
            # On tmpfs `cp` takes the holes of a file before its contents: its copy would lack entries that a checkpoint
            # in front of them has as durable. Not before: without a header, torn zeros would look like lost records.
            files.write_all(self._index_fd, bytes(self._reserved - HEADER_BYTES), HEADER_BYTES)
        except BaseException:
            with suppress(OSError):  # the next try removes them
                # Both, also without a descriptor: KeyboardInterrupt may have come before it was assigned.
                remove_unborn(files, self.index_path, self.segment_path)
            self.close()
            raise
        self._durable_sequence = self.checkpoint.sequence

    def _open(self) -> None:
        """Open the files that an earlier process closed. Raises OSError without a change."""
        if self._index_fd >= 0:
            return
        files = self._files
        segment_fd = files.open(self.segment_path, write=True)
        try:
            index_fd = files.open(self.index_path, write=True)
            try:
                end = entry_position(self.count)
                if files.size(index_fd) != end:  # killed before it was cut: a part of a trailer may be there
                    files.truncate(index_fd, end)
            except BaseException:
                files.close(index_fd)
                raise
        except BaseException:
            files.close(segment_fd)
            raise
        self._reserved = self._allocated = end
        self._segment_fd, self._index_fd = segment_fd, index_fd

    def _created(self, path: Path) -> int:
        try:
            return self._files.create(path)
        except FileExistsError:
            # No segment begins at the end of the log: these are files of an earlier try that could not be removed.
            self._files.unlink(path)
            return self._files.create(path)

    @property
    def _ceiling_offsets(self) -> int:
        return REPLICA_RESERVE_OFFSETS if self.header.is_replicated else RESERVE_OFFSETS

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    def write(self, stored: StoredBytes, entries: bytes) -> None:
        """Write records and their entries after the last ones; they are valid on return.

        On OSError none is valid, and the next write overwrites what was left. Raises HalfWritten (from an OSError)
        if entries that may look valid could not be removed."""
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

    def write_batch_at(self, write_batch: WriteBatch, timestamp_us: int) -> bytes:
        """Write a batch and return its entries. See `write`."""
        entries = self.write_prepared(write_batch, timestamp_us)
        return self._write_with_entries(write_batch, timestamp_us) if entries is None else entries

    def _write_again(self, stored: StoredBytes, entries: bytes) -> None:
        """Write what the compiled kernel did not write whole."""
        # Entries first: if the records are in the file and cannot be rewritten, their entries would be valid.
        self._take_back(len(entries), entry_position(self.count))
        self.write(stored, entries)

    def _take_back(self, size_bytes: int, position: int, cause: OSError | None = None) -> None:
        """Overwrite entries that may be whole with zeros, because recovery or another process would accept them.
        Raises HalfWritten."""
        try:
            self._files.write_all(self._index_fd, bytes(size_bytes), position)
        except OSError as error:
            raise HalfWritten(f"index entries from offset {self.end_offset} on") from cause or error

    def _write_with_entries(self, write_batch: WriteBatch, timestamp_us: int) -> bytes:
        entries = write_batch.entries(
            self.seal, ordinal=self.count, position=self.size_bytes, timestamp_us=timestamp_us
        )
        self.write(write_batch.stored, entries)
        return entries

    def take_name(self) -> None:
        """Rename the flushed files to the names of a segment, durably, replacing any of those names."""
        segment_path = names.segment_path(self._folder, self.base_offset)
        index_path = names.index_path(self._folder, self.base_offset)
        self._files.rename(self.segment_path, segment_path)
        # Synced separately: the segment file matches the index in place, which may refer to more than the disk has of
        # the file that it replaces.
        self._files.sync_directory(self._folder)
        self._files.rename(self.index_path, index_path)
        self._files.sync_directory(self._folder)
        self.segment_path, self.index_path = segment_path, index_path

    def raise_ceiling(self, end_offset: int) -> None:
        """Make it durable that readers may see offsets below `end_offset`, so also that the segment is not closed any
        more. Call before a record is written. Raises FailedFlush; OSError without a change."""
        if end_offset <= self._durable_ceiling:
            return
        self._open()
        try:
            self._raise_checkpoint(end_offset + self._ceiling_offsets)
            self._files.fdatasync(self._index_fd)
        except OSError as error:
            raise FailedFlush(f"{self.index_path}: {error}") from error
        self._note_durable(self.checkpoint)

    def prepare_flush(self) -> None:
        """Do in advance what an append would wait for: the next flush includes a higher ceiling, and index space for
        records that arrive during it is reserved. Raises OSError, after which the checkpoint in the file is
        unreliable."""
        if self._index_fd < 0:
            return  # closed by an earlier process, and not appended to since
        low = self._ceiling_offsets * 3 // 4 if self.header.is_replicated else _CEILING_LOW_OFFSETS
        if self._durable_ceiling - self.end_offset < low:
            self._raise_checkpoint(self.end_offset + self._ceiling_offsets)
        ahead = min(self._reserved, _RESERVE_AHEAD_BYTES)
        if 2 * entry_position(self.count) > self._reserved and self._allocated - self._reserved < ahead // 2:
            with suppress(OSError):  # the append that needs it raises the error
                self._allocate(self._reserved + ahead)

    def flush(self, count: int) -> None:
        """Call fdatasync on both files; the first `count` records are durable on return.

        This is where an acknowledged record reaches the disk. Called by one thread at a time while others write.
        Raises OSError, after which no later success is reliable for this segment."""
        checkpoint, size_bytes = self.checkpoint, self.size_bytes
        if self._is_ahead_due(size_bytes):
            self._allocate_ahead(size_bytes)
        self._flushing = True
        try:
            self._files.fdatasync_both(self._segment_fd, self._index_fd)
        finally:
            self._flushing = False
        self._flushed(checkpoint, count)

    def begin_flush(self, wake_fd: int) -> tuple[loops.Flush, Checkpoint] | None:
        """Begin what `flush` does, see `Files.begin_flush`. Return the flush and the checkpoint that it makes durable,
        for `end_flush`; None where more than a flush is due."""
        checkpoint = self.checkpoint
        if self._is_ahead_due(self.size_bytes):
            return None
        flush = self._files.begin_flush(self._segment_fd, self._index_fd, wake_fd)
        self._flushing = flush is not None
        return None if flush is None else (flush, checkpoint)

    def end_flush(self, flush: loops.Flush, checkpoint: Checkpoint, count: int) -> None:
        """Wait for the end of a flush of the first `count` records, and take note of it. Raises as `flush`."""
        try:
            self._files.end_flush(flush)
        finally:
            self._flushing = False
        self._flushed(checkpoint, count)

    def _is_ahead_due(self, size_bytes: int) -> bool:
        return (
            size_bytes >= _AHEAD_FIRST_BYTES
            and self._ahead - size_bytes < min(size_bytes, _AHEAD_MOST_BYTES) // 2
        )

    def _flushed(self, checkpoint: Checkpoint, count: int) -> None:
        self._note_durable(checkpoint)
        self.synced_count = count

    def note_synced(self, count: int, size_bytes: int) -> None:
        """Write a checkpoint of what has been flushed, for recovery and for readers in other processes. It reaches
        the disk with the next flush, so it never states more than the disk has."""
        self._next_checkpoint(count, size_bytes, self.checkpoint.ceiling)

    def write_slot(self, slot: bytes, position: int) -> bool:
        """Write bytes into the header page, unless the file is not open. Not flushed. Raises OSError."""
        if self._index_fd < 0:
            return False
        self._files.write_all(self._index_fd, slot, position)
        return True

    def cut(self, end_offset: int) -> None:
        """Keep the records below `end_offset`, at least one and all durable, because another segment has the later
        ones. Raises OSError without a change."""
        self._open()
        count = end_offset - self.base_offset
        raw = self._files.pread(self._index_fd, ENTRY_BYTES, entry_position(count - 1))
        last = np.frombuffer(raw, dtype=ENTRY)[0]
        self.count = self.synced_count = count
        self.size_bytes = int(last["position"]) + int(last["length"])
        self._is_cut = True

    def close_unsealed(self) -> None:
        """Cut the files behind the last record, and make a checkpoint durable by which the next process continues this
        segment. All records are durable.

        Raises OSError: the segment takes no more appends, and can be sealed."""
        if self._index_fd < 0:
            return  # closed as it was
        end = entry_position(self.count)
        written_bytes = self._files.size(self._segment_fd)
        self._files.truncate(self._segment_fd, self.size_bytes)  # of the same size it may have blocks ahead
        if written_bytes != self.size_bytes:
            self._files.fdatasync(self._segment_fd)
        self._files.truncate(self._index_fd, end)
        self._reserved = self._allocated = end
        self._next_checkpoint(self.count, self.size_bytes, self.end_offset)
        self._files.fdatasync(self._index_fd)

    def seal_files(self, now_us: int) -> Trailer:
        """Flush and seal a segment that takes no more appends and has at least one record.

        The sealed segment is durable on return. On OSError it is still unsealed, and the call can be repeated."""
        self._open()
        self._ahead = _NEVER
        # Remove what a failed append left after the last record; but after `cut`, a reader may be reading there.
        size_bytes = self._files.size(self._segment_fd) if self._is_cut else self.size_bytes
        self._files.truncate(self._segment_fd, size_bytes)
        if self.synced_count < self.count:  # otherwise only bytes without effect are not durable
            self.flush(self.count)
        if self._is_cut:
            # After its last entry come those that another segment has now. They stay until the segment is put aside.
            facts = SegmentFacts(self.count, self.size_bytes)
            return seal_index(self._files, self.header, self._folder, facts, now_us)
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
        """Delete the files of a segment that never got a record."""
        assert self.count == 0
        self.close()
        remove_unborn(self._files, self.index_path, self.segment_path)

    def _next_checkpoint(self, count: int, size_bytes: int, ceiling: int) -> None:
        # An unflushed slot is overwritten in place, so one of the two slots is always intact
        # on the disk.
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
        """Reserve zeroed space for `count` entries: by 64 KiB, then doubling, then by 1 MiB.

        The zeros are also written, in the first step by `_create`. In blocks that are only reserved, each flush of
        entries would update the metadata of the file; so one flush a step does (docs/performance.md)."""
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
        """Preallocate blocks of a segment that has grown large: as many as it has, 64 MiB at most. A pwrite to
        allocated blocks takes two thirds of the time. Only an optimisation.

        Best called when a flush begins. During one it would wait for it, and a write with it."""
        step = min(from_bytes, _AHEAD_MOST_BYTES)
        try:
            if self._files.free_bytes(self._folder) >= _AHEAD_SHARE * step:
                self._files.allocate_ahead(self._segment_fd, self.size_bytes, from_bytes + step)
            self._ahead = from_bytes + step
        except OSError:
            self._ahead = _NEVER  # not on this file system, or not now
