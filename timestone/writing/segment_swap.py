"""Putting a rewritten pair of files in the place of a sealed one, whole or not at all.

What belongs here: the order of system calls. What the new files hold is up to whoever rewrites (`compressing.py`);
it knows no log. The index is what counts: its trailer says which generation of the segment file is meant.

1. the new segment file is made under the name of the next generation, which no index means yet; it is flushed, and
   the directory is;
2. the new index is written beside the old one, flushed, and renamed over it: from here on the new pair counts;
3. the directory is flushed; only now may the old segment file go, after a delay in which other processes can still
   open what they have just listed.

So a crash leaves the old pair or the new one, and perhaps a segment file that no index means: the next open removes
it (`remove_replaced`). A reader that has the old files open keeps them; one that opens them too late notices by the
generation, or because they are gone, and looks at the folder again."""

import errno
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.index import Trailer

_LOGGER = logging.getLogger("timestone")


class Replacement:
    """A new pair of files for one sealed segment, in the making. One at a time for a segment; not thread-safe.

    Write records to `segment_fd`, then `prepare`, then `commit`; or `discard`."""

    def __init__(self, files: Files, folder: Path, old: Trailer) -> None:
        """Makes the new segment file. Raises OSError."""
        self.generation = old.generation + 1
        """What the new trailer has to say."""
        self._files = files
        self._folder = folder
        self._old_path = names.segment_path(folder, old.base_offset, old.generation)
        self._segment_path = names.segment_path(folder, old.base_offset, self.generation)
        self._index_path = names.index_path(folder, old.base_offset)
        self.new_index_path = names.with_suffix(self._index_path, names.TEMPORARY_SUFFIX)
        """Where the new index is between `prepare` and `commit`."""
        self._made: list[Path] = []
        self._owner_pid = os.getpid()
        self.segment_fd = self._created(self._segment_path)

    def prepare(self, write_index: Callable[[int], Trailer]) -> Trailer:
        """Flush the new segment file; have the new index written to the descriptor of an empty file, and flush it.
        Returns the trailer that was written. Nothing counts yet. Raises OSError; discard it then."""
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
        """Let the new pair count. Returns the old segment file for unlinking, or nothing when that has to wait for
        the next open. The caller keeps others from renaming files of the segment meanwhile.

        Raises OSError when the old pair still counts; discard it then."""
        self._files.rename(self.new_index_path, self._index_path)
        self._made.clear()
        try:
            self._files.sync_directory(self._folder)
        except OSError as error:
            # A power loss may bring the old index back, and that needs the old segment file.
            _LOGGER.warning("%s: stays until the next open: %s", self._old_path, error)
            return []
        return [self._old_path]

    def discard(self) -> None:
        """Remove what was made and does not count. Harmless after `commit`, and in the copy of a forked child, whose
        parent may have committed it since."""
        self._close_segment()
        if os.getpid() != self._owner_pid:
            self._made.clear()
        while self._made:
            path = self._made.pop()
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                continue  # the segment was deleted in between, with all its files
            except OSError as error:
                _LOGGER.warning("%s: stays until the next open: %s", path, error)

    def _created(self, path: Path) -> int:
        if path.name in self._files.names(self._folder):
            self._files.unlink(path)  # what an earlier try has left
        fd = self._files.create(path)
        self._made.append(path)
        return fd

    def _close_segment(self) -> None:
        fd, self.segment_fd = self.segment_fd, -1
        if fd >= 0:
            self._files.close(fd)


def check_space(files: Files, segment_path: Path, added_bytes: int, min_free_bytes: int) -> None:
    """Rewriting must not be what brings appends to a halt: it has to leave `min_free_bytes`. Raises OSError."""
    free_bytes = files.free_bytes(segment_path.parent)
    wanted = min_free_bytes + added_bytes
    if free_bytes < wanted:
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: rewriting wants {wanted} bytes free, there are {free_bytes}",
            str(segment_path),
        )


def remove_replaced(files: Files, folder: Path, sealed: Iterable[Trailer]) -> int:
    """Unlink segment files that no index means; `sealed`: what the indexes in the folder say. Returns how many went.
    Raises OSError."""
    meant = {trailer.base_offset: trailer.generation for trailer in sealed}
    unneeded = [
        name
        for name in files.names(folder)
        if (segment := names.parse_segment(name)) is not None
        and segment[1] != meant.get(segment[0], segment[1])
    ]
    if unneeded:
        # The owner may have died before its rename was durable; then the old index could come back.
        files.sync_directory(folder)
    for name in unneeded:
        files.unlink(folder / name)
    return len(unneeded)
