"""Marker of a failed fsync, for a later open: the kernel may treat pages as clean that never reached the disk.

The process that met the failure rewrites its records (timestone/writing/fsync_failover.py). If it cannot, or ends
before that is done, the next open finds the marker and copies verified bytes into new files, whose flush can be
trusted."""

from contextlib import suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names


def has_failed_fsync(files: Files, folder: Path) -> bool:
    """Return whether a flush failed in this folder without a completed rewrite since."""
    return names.DOUBT_NAME in files.names(folder)


def mark_failed_fsync(files: Files, folder: Path) -> None:
    """Create the marker. A later open during the same boot cannot detect the failure: its own flushes of the same
    pages would succeed. The marker need not be durable, because a reboot empties the page cache too."""
    if not has_failed_fsync(files, folder):
        files.close(files.create(folder / names.DOUBT_NAME))


def clear_failed_fsync(files: Files, folder: Path) -> None:
    """Remove the marker when all affected records are in new, flushed files."""
    if has_failed_fsync(files, folder):
        files.unlink(folder / names.DOUBT_NAME)


def copy_anew(files: Files, path: Path, size_bytes: int) -> None:
    """Replace a file by a flushed copy of its first bytes; the caller syncs the directory. On OSError the file is
    unchanged and no copy is left."""
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    files.discard(temporary)
    files.copy_file(path, temporary, 0, size_bytes)
    try:
        files.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
