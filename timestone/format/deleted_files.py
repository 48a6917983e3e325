"""How the oldest segments of a log go: renamed first, unlinked later.

The order is the promise that a log never starts earlier than it once did:

1. each pair is renamed to `.deleted`, oldest first, its index before its segment (with what is left of an earlier
   generation of that);
2. the directory is synced; only now is anybody told of the new start;
3. the files are unlinked, after a delay in which other processes can still open what they have just listed, or
   by the next open.

Segments only ever go from the front. So one `.deleted` file proves that its segment and everything before it is
deleted, whatever else a power loss has left of the renames: see `live`."""

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
    """The segment files in a folder by their base offsets: one each, and what is left of earlier generations. Raises
    OSError."""
    found: dict[int, list[Path]] = {}
    for name in files.names(folder):
        if (segment := names.parse_segment(name)) is not None:
            found.setdefault(segment[0], []).append(folder / name)
    return found


def delete_pair(files: Files, folder: Path, base_offset: int, segments: Sequence[Path]) -> list[Path]:
    """Rename one pair; returns what is to be unlinked. The caller syncs the directory. Raises OSError when the
    pair is as it was. segments: its segment files."""
    index = names.index_path(folder, base_offset)
    files.rename(index, names.deleted_path(index))
    for segment_path in segments:
        try:
            files.rename(segment_path, names.deleted_path(segment_path))
        except FileNotFoundError:
            continue  # of an earlier generation, unlinked in between
        except OSError as error:
            # The index proves the pair deleted, so it has to stay; the next open finishes it.
            _LOGGER.warning("%s: deleted, but still there until the next open: %s", segment_path, error)
            return []
    return [names.deleted_path(index), *map(names.deleted_path, segments)]


def deleted_up_to(present: Iterable[str]) -> int:
    """The highest base offset that the names in a folder prove deleted; -1 for none."""
    return max((base for name in present if (base := names.parse_deleted(name)) is not None), default=-1)


def finish_deletions(files: Files, folder: Path) -> int:
    """Complete what a crash has cut short, and unlink what waits for it. Returns how many files went.

    Raises OSError; what was deleted stays deleted."""
    present = files.names(folder)
    last = deleted_up_to(present)
    if last < 0:
        return 0
    returned = [
        name for name in present if (base := names.parse_pair_base(name)) is not None and base <= last
    ]
    for name in returned:
        files.rename(folder / name, names.deleted_path(folder / name))
    # Also when all had been renamed: whoever did may have died before that was durable. Else a power loss could take
    # the proof and bring back what it proves deleted.
    files.sync_directory(folder)
    gone = [name for name in files.names(folder) if names.parse_deleted(name) is not None]
    for name in gone:
        files.unlink(folder / name)
    return len(gone)


class DeletedFiles:
    """Files and folders that are not needed any more, with their delay still to run. Thread-safe."""

    def __init__(self, files: Files, delay_ms: int) -> None:
        self._files = files
        self._delay_s = delay_ms / 1000
        self._waiting: deque[tuple[float, Path, Callable[[Path], None]]] = deque()
        self._lock = threading.Lock()

    def add(self, paths: Sequence[Path]) -> None:
        """Unlink these once the delay is over."""
        due = time.monotonic() + self._delay_s
        with self._lock:
            self._waiting.extend((due, path, self._files.unlink) for path in paths)

    def add_folder(self, folder: Path) -> None:
        """Remove a folder of files, to which none are added any more, once the delay is over. Raises OSError."""
        self.add([folder / name for name in self._files.names(folder)])
        with self._lock:
            self._waiting.append((time.monotonic() + self._delay_s, folder, self._files.remove_directory))

    def unlink_due(self) -> float | None:
        """Unlink what is due; returns in how many seconds more will be, None for never. A file that cannot be
        unlinked is left to the next open."""
        while self._unlink_first(time.monotonic()):
            pass
        with self._lock:
            return self._waiting[0][0] - time.monotonic() if self._waiting else None

    def unlink_all(self) -> None:
        """The store closes: do not wait."""
        while self._unlink_first(math.inf):
            pass

    def _unlink_first(self, due_by: float) -> bool:
        """Unlink what waits longest if it is due by then; false when there is nothing of the kind."""
        with self._lock:
            if not self._waiting or self._waiting[0][0] > due_by:
                return False
            _, path, remove = self._waiting.popleft()
        try:
            remove(path)
        except FileNotFoundError:
            pass  # an earlier generation of a segment that was deleted in between, with all its files
        except OSError as error:
            _LOGGER.warning("%s: could not be removed, the next open tries again: %s", path, error)
        return True
