"""What a failed flush leaves behind for a later open: a kernel that calls pages clean which never reached the disk.

The process that met the failure writes its records again (timestone/writing/fsync_failover.py). If it cannot, or
ends before that is done, the next open finds the marker and copies what it has verified into new files, whose flush
can be trusted."""

from contextlib import suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names


def is_doubted(files: Files, folder: Path) -> bool:
    """Has a flush failed here, with nothing done about it since?"""
    return names.DOUBT_NAME in files.names(folder)


def mark_doubt(files: Files, folder: Path) -> None:
    """Note that a flush failed here. A later open of the same boot cannot find out by itself: its own flushes of
    the same pages would succeed. The mark need not be durable, because a reboot empties the page cache too."""
    if not is_doubted(files, folder):
        files.close(files.create(folder / names.DOUBT_NAME))


def clear_doubt(files: Files, folder: Path) -> None:
    """Everything that was in doubt is in new files, flushed."""
    if is_doubted(files, folder):
        files.unlink(folder / names.DOUBT_NAME)


def copy_anew(files: Files, path: Path, size_bytes: int) -> None:
    """Replace a file by a flushed copy of its first bytes; the caller syncs the directory. On OSError the file is
    as it was, and no copy is left to take the space."""
    temporary = names.with_suffix(path, names.TEMPORARY_SUFFIX)
    if temporary.name in files.names(path.parent):
        files.unlink(temporary)
    files.copy_file(path, temporary, 0, size_bytes)
    try:
        files.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            files.unlink(temporary)
        raise
