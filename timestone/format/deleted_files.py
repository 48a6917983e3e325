"""Deletion of the oldest segments of a log: renamed first, unlinked later.

The order guarantees that a log never starts earlier than it once did:

1. each pair is renamed to `.deleted`, oldest first, the index before the segment (and before segment files of an
   earlier generation);
2. the directory is synced; only then is the new start offset visible;
3. the files are unlinked after a delay in which other processes can open what they have listed, or by the next open.

Segments are deleted from the front only. So one `.deleted` file proves that its segment and all before it are
deleted, whichever renames a power loss undid: see `live`."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names

_LOGGER = logging.getLogger("timestone")


def segment_files(files: Files, folder: Path) -> dict[int, list[Path]]:
    """Return the segment files in a folder by base offset, with those of earlier generations. Raises OSError."""
    found: dict[int, list[Path]] = {}
    for name in files.names(folder):
        if (segment := names.parse_segment(name)) is not None:
            found.setdefault(segment[0], []).append(folder / name)
    return found


def delete_pair(files: Files, folder: Path, base_offset: int, segments: Sequence[Path]) -> list[Path]:
    """Rename one pair and return the paths to unlink. The caller syncs the directory. Raises OSError if nothing was
    renamed. segments: the segment files of the pair."""
    index = names.index_path(folder, base_offset)
    files.rename(index, names.deleted_path(index))
    for segment_path in segments:
        try:
            files.rename(segment_path, names.deleted_path(segment_path))
        except FileNotFoundError:
            continue  # a file of an earlier generation, unlinked in between
        except OSError as error:
            # The index proves the deletion, so it must stay; the next open finishes it.
            _LOGGER.warning("%s: deleted, but still there until the next open: %s", segment_path, error)
            return []
    return [names.deleted_path(index), *map(names.deleted_path, segments)]


def deleted_up_to(present: Iterable[str]) -> int:
    """Return the highest base offset that the names in a folder prove deleted; -1 if none."""
    return max((base for name in present if (base := names.parse_deleted(name)) is not None), default=-1)


def forget_missing(files: Files, folder: Path, start_offset: int) -> None:
    """Remove the notes of lost offsets before the segments that are left: the records around them are deleted, so
    the log begins with its first segment. The caller syncs the directory. Raises OSError."""
    for name in files.names(folder):
        if (found := names.parse_missing(name)) is not None and found[0] < start_offset:
            files.unlink(folder / name)


def finish_deletions(files: Files, folder: Path) -> int:
    """Complete deletions that a crash interrupted and unlink the renamed files. Return the number of unlinked files.
    Raises OSError; what was deleted stays deleted."""
    present = files.names(folder)
    last = deleted_up_to(present)
    if last < 0:
        return 0
    bases = {name: base for name in present if (base := names.parse_pair_base(name)) is not None}
    for name, base in bases.items():
        if base <= last:
            files.rename(folder / name, names.deleted_path(folder / name))
    if left := [base for base in bases.values() if base > last]:
        forget_missing(files, folder, min(left))
    # Also if all were renamed: the process may have died before the renames were durable, and a power loss
    # could take the proof and bring back the segments.
    files.sync_directory(folder)
    gone = [name for name in files.names(folder) if names.parse_deleted(name) is not None]
    for name in gone:
        files.unlink(folder / name)
    return len(gone)


class DeletedFiles:
    """Files and folders to unlink after a delay. Thread-safe."""

    def __init__(self, files: Files, delay_ms: int) -> None:
        self._files = files
        self._delay_s = delay_ms / 1000
        self._waiting: deque[tuple[float, Path, Callable[[Path], None]]] = deque()
        self._lock = threading.Lock()

    def add(self, paths: Sequence[Path]) -> None:
        """Unlink these paths after the delay."""
        due = time.monotonic() + self._delay_s
        with self._lock:
            self._waiting.extend((due, path, self._files.unlink) for path in paths)

    def add_folder(self, folder: Path) -> None:
        """Remove a folder to which no file is added any more, after the delay. Raises OSError."""
        self.add([folder / name for name in self._files.names(folder)])
        with self._lock:
            self._waiting.append((time.monotonic() + self._delay_s, folder, self._files.remove_directory))

    def forget(self, folder: Path) -> None:
        """Unlink nothing in a folder any more: it is renamed next, and another one may get its name, and its files the
        names of those that wait."""
        with self._lock:
            self._waiting = deque(one for one in self._waiting if one[1].parent != folder)

    def unlink_due(self) -> float | None:
        """Unlink what is due. Return the seconds until the next is due; None if there is none. A file that cannot be
        unlinked is left to the next open."""
        while self._unlink_first(time.monotonic()):
            pass
        with self._lock:
            return self._waiting[0][0] - time.monotonic() if self._waiting else None

    def unlink_all(self) -> None:
        """Unlink everything without delay, at the close of the store."""
        while self._unlink_first(math.inf):
            pass

    def _unlink_first(self, due_by: float) -> bool:
        """Unlink the oldest path if it is due by then. Return False if there is none."""
        with self._lock:
            if not self._waiting or self._waiting[0][0] > due_by:
                return False
            _, path, remove = self._waiting.popleft()
            try:  # with the lock: after `forget` nothing is under way
                remove(path)
            except FileNotFoundError:
                pass  # a file of an earlier generation of a segment that was deleted in between
            except OSError as error:
                _LOGGER.warning("%s: could not be removed, the next open tries again: %s", path, error)
        return True
