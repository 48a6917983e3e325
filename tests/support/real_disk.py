"""A real file system in a file, whose power can be cut.

A loop device with ext4 or XFS on it. `cut_power` shuts the file system down without writing its journal, as a power
loss does: unflushed contents, names and removals are lost, and the next mount replays the journal. It is slower than
the simulations, and tests one moment at a time, but it is not a model.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_SYSTEMS = ("ext4", "xfs")
"""File systems that can be shut down."""
_IMAGE_BYTES = 640 << 20
"""XFS needs 300 MiB, and a store some free space. Few of these bytes are ever written."""
_SHUT_DOWN = 0x8004587D
"""`XFS_IOC_GOINGDOWN` of linux/xfs_fs.h, which ext4 has under the same number (`EXT4_IOC_SHUTDOWN`)."""
_NO_LOG_FLUSH = struct.pack("I", 2)
_MOUNT_S = 60.0


def make(kind: str, image: Path) -> None:
    """Make an empty file system of this kind in a new file."""
    with image.open("xb") as file:
        file.truncate(_IMAGE_BYTES)
    _run(f"mkfs.{kind}", "-q", image)


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    """Mount the file system of an image at an empty directory. No process may use it when the block is left."""
    _run("mount", "-o", "loop", image, place)
    try:
        yield
    finally:
        _run("umount", place)


def cut_power(place: Path) -> None:
    """Cut the power of the disk at `place`: every use of it is an error until it is mounted again."""
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUT_DOWN, _NO_LOG_FLUSH)
    finally:
        os.close(fd)


def reason_to_skip(kind: str) -> str:
    """Return why this system cannot run such a disk; empty when it can."""
    if os.geteuid() != 0:
        return "only root may mount here"
    if shutil.which(f"mkfs.{kind}") is None:
        return f"there is no mkfs.{kind}"
    free = subprocess.run(["losetup", "--find"], capture_output=True, check=False, timeout=_MOUNT_S)
    return "" if free.returncode == 0 else "there is no loop device"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOUNT_S)
    assert done.returncode == 0, f"{command}: {done.stderr}"
