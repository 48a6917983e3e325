"""Replacement of the files of a sealed segment by rewritten ones, whole or not at all.

What belongs here: the order of system calls. The content of the new files is up to the caller (compression,
compaction). The index decides: its trailer states the generation of the segment file.

1. The new segment file is created under the name of the next generation, which no index refers to yet; it is flushed,
   and so is the directory.
2. The new index is written beside the old one, flushed, and renamed over it: the new pair is in effect.
3. The directory is flushed. Only then may the old segment file be removed, after a delay in which other processes can
   still open the files they have just listed.

A crash leaves the old pair or the new one, and perhaps a segment file that no index refers to: the next open removes it
(`remove_replaced`). A reader that has the old files open keeps them; one that opens them too late notices by the
generation or a missing file, and lists the folder again."""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import Trailer

_LOGGER = logging.getLogger("timestone")


class SegmentSwap:
    """New pair of files for one sealed segment. One at a time for a segment; not thread-safe.

    Write records to `segment_fd`, then call `prepare`, then `commit`; or `discard`."""

    def __init__(self, files: Files, folder: Path, old: Trailer) -> None:
        """Create the new segment file. Raises OSError."""
        self.generation = old.generation + 1
        """Generation for the new trailer."""
        self._files = files
        self._folder = folder
        self._old_path = names.segment_path(folder, old.base_offset, old.generation)
        self._segment_path = names.segment_path(folder, old.base_offset, self.generation)
        self._index_path = names.index_path(folder, old.base_offset)
        self.new_index_path = names.with_suffix(self._index_path, names.TEMPORARY_SUFFIX)
        """Path of the new index between `prepare` and `commit`."""
        self._made: list[Path] = []
        self._owner_pid = os.getpid()
        self.segment_fd = self._created(self._segment_path)

    def prepare(self, write_index: Callable[[int], Trailer]) -> Trailer:
        """Flush the new segment file, call `write_index` with the descriptor of an empty file, and flush that.
        Return the trailer that was written. The swap has no effect yet. Raises OSError; discard it then."""
        self._files.fdatasync(self.segment_fd)
        self._close_segment()
        self._files.sync_directory(self._folder)
        index_fd = self._created(self.new_index_path)
        try:
            trailer = write_index(index_fd)
            assert trailer.generation == self.generation
            self._files.fdatasync(index_fd)
        finally:
            self._files.close(index_fd)
        return trailer

    def commit(self) -> list[Path]:
        """Replace the old pair by the new one. Return the old segment file for unlinking, or nothing if it must stay
        until the next open. The caller prevents other renames in the segment. Raises OSError if the old pair is
        still in effect; discard the swap then."""
        self._files.rename(self.new_index_path, self._index_path)
        self._made.clear()
        try:
            self._files.sync_directory(self._folder)
        except OSError as error:
            # A power loss may bring the old index back, which needs the old segment file.
            _LOGGER.warning("%s: stays until the next open: %s", self._old_path, error)
            return []
        return [self._old_path]

    def discard(self) -> None:
        """Remove the new files if they are not in effect. Harmless after `commit`, and in a forked child, whose
        parent may have committed since."""
        self._close_segment()
        if os.getpid() != self._owner_pid:
            self._made.clear()
        while self._made:
            path = self._made.pop()
            try:
                self._files.discard(path)  # missing if the segment was deleted in between, with all its files
            except OSError as error:
                _LOGGER.warning("%s: stays until the next open: %s", path, error)

    def _created(self, path: Path) -> int:
        self._files.discard(path)  # of an earlier try
        fd = self._files.create(path)
        self._made.append(path)
        return fd

    def _close_segment(self) -> None:
        fd, self.segment_fd = self.segment_fd, -1
        if fd >= 0:
            self._files.close(fd)


def check_space(files: Files, segment_path: Path, added_bytes: int, min_free_bytes: int) -> None:
    """Raise OSError unless `min_free_bytes` stay free, so that rewriting does not stop appends."""
    free_bytes = files.free_bytes(segment_path.parent)
    wanted = min_free_bytes + added_bytes
    if free_bytes < wanted:
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: rewriting needs {wanted} free bytes, got {free_bytes}",
            str(segment_path),
        )


def remove_replaced(files: Files, folder: Path, sealed: Iterable[Trailer]) -> int:
    """Unlink segment files that no index refers to. sealed: the trailers in the folder. Return the number of files.
    Raises OSError."""
    meant = {trailer.base_offset: trailer.generation for trailer in sealed}
    unneeded = [
        name
        for name in files.names(folder)
        if (segment := names.parse_segment(name)) is not None
        and segment[1] != meant.get(segment[0], segment[1])
    ]
    if unneeded:
        # The owner may have died before its rename was durable, and the old index could come back.
        files.sync_directory(folder)
    for name in unneeded:
        files.unlink(folder / name)
    return len(unneeded)
