"""A folder as a bucket, for a disk that is mounted from elsewhere, and for trying things out.

An object is a file. It is written beside its name, flushed, and gets the name by a hard link (which fails when the name
is taken) or a rename, so that it appears whole, durable, and under `create` exactly once."""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.format.names import TEMPORARY_SUFFIX

from ..errors import BucketError, BucketRefused, BucketUnavailable, ObjectExists, ObjectMissing
from .bucket import PIECE_BYTES, ObjectFacts

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


class FolderBucket:
    """The files below a folder, which is made by the first write."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._root = root
        self._files = files or Files()

    @property
    def url(self) -> str:
        return self._root.absolute().as_uri()

    def create(self, name: str, data: bytes) -> str | None:
        path = self._path(name)
        temporary = self._written(path, (data,))
        try:
            with _told():
                self._files.link(temporary, path)
        except BucketError as error:
            if isinstance(error.__cause__, FileExistsError):
                raise ObjectExists(f"{self.url}: {name} exists already") from None
            raise
        finally:
            with suppress(OSError):
                self._files.unlink(temporary)
        with _told():
            self._files.sync_directory(path.parent)
        return None

    def write(self, name: str, pieces: Iterable[bytes]) -> str | None:
        path = self._path(name)
        temporary = self._written(path, pieces)
        with _told():
            self._files.rename(temporary, path)
            self._files.sync_directory(path.parent)
        return None

    def read(self, name: str) -> bytes:
        with self._reading(name):
            return self._files.read_file(self._path(name))

    def stream(self, name: str) -> Iterator[bytes]:
        with self._reading(name), self._files.opened(self._path(name)) as fd:
            position = 0
            while piece := self._files.read_all(fd, PIECE_BYTES, position):
                position += len(piece)
                yield piece

    def read_range(self, name: str, start: int, length_bytes: int) -> bytes:
        with self._reading(name), self._files.opened(self._path(name)) as fd:
            return self._files.read_all(fd, length_bytes, start)

    def head(self, name: str) -> ObjectFacts:
        with self._reading(name):
            found = self._files.stat(self._path(name))
        return ObjectFacts(name, found.st_size, None, found.st_mtime_ns // 1000)

    def objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectFacts]:
        names = sorted(name for name in self._names(prefix) if name > after)
        for name in names:
            try:
                yield self.head(name)
            except ObjectMissing:
                continue  # deleted since it was listed

    def prefixes(self, prefix: str) -> list[str]:
        with _told():
            try:
                with os.scandir(self._root / prefix) as entries:
                    return sorted(f"{prefix}{entry.name}/" for entry in entries if entry.is_dir())
            except FileNotFoundError:
                return []

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with _told(), suppress(FileNotFoundError):
                self._files.unlink(self._path(name))

    def _path(self, name: str) -> Path:
        if not name or any(part in ("", ".", "..") for part in name.split("/")):
            raise ValueError(f"invalid name of an object: {name!r}")
        return self._root / name

    def _names(self, prefix: str) -> Iterator[str]:
        for folder, _, files in os.walk(self._root / prefix):
            inner = Path(folder).relative_to(self._root)
            for file in files:
                yield str(inner / file)

    def _written(self, path: Path, pieces: Iterable[bytes]) -> Path:
        """Return a flushed file with these bytes beside the path."""
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
        with _told():
            self._files.make_directories(path.parent)
            fd = self._files.create(temporary)
        try:
            position = 0
            for piece in pieces:
                with _told():
                    self._files.write_all(fd, piece, position)
                position += len(piece)
            with _told():
                self._files.fdatasync(fd)
        except BaseException:
            with suppress(OSError):
                self._files.unlink(temporary)
            raise
        finally:
            self._files.close(fd)
        return temporary

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with _told():
            try:
                yield
            except (FileNotFoundError, NotADirectoryError):
                raise ObjectMissing(f"{self.url}: there is no object {name}") from None


@contextmanager
def _told() -> Iterator[None]:
    """Raise an error of the file system as one of a bucket."""
    try:
        yield
    except OSError as error:
        kind = BucketRefused if error.errno in _REFUSED else BucketUnavailable
        raise kind(f"{error.filename}: {error.strerror or error}") from error
