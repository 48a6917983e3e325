"""The possible contents of a disk after the power failed somewhere in a recorded run.

The model, which is the worst that a disk with honest flushes may do (docs/durability.md has the assumptions):

- Data written to a file before the start of a completed sync is there.
- Of all other data, each 512-byte sector may have any of its values since: lost, reordered, torn.
- A sector in flight may be garbage, but only in the bytes being written (powersafe overwrite).
- The file may have any of its lengths since, or any length between.
- A creation, rename or removal in a directory that was not synced since may have happened or not, independently.
- Pages that a failed sync marked clean may never reach the disk, even if later syncs succeed.

Everything is drawn from a `random.Random`: the same seed gives the same image.
"""

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.recording_files import (
    CatalogChanged,
    Created,
    DirectoryMade,
    DirectorySynced,
    Operation,
    RecordingFiles,
    Renamed,
    Reserved,
    SyncEnded,
    SyncFailed,
    Truncated,
    Unlinked,
    Written,
)
from tests.support.seeds import is_soak

SECTOR_BYTES = 512


class Loss(enum.Enum):
    """The kind of loss of one image."""

    NOTHING = "all of it reached the disk: kill -9"
    EVERYTHING = "only what was synced is there"
    LAST_TORN = "all is there but a part of the last write"
    SECTORS = "each unsynced sector, length and name on its own"
    GARBAGE = "as before, and sectors in flight are garbage"


@dataclass(slots=True)
class _Version:
    """The effect of one write on a sector; bytes [low, high) of it were in flight."""

    number: int
    data: bytes
    low: int
    high: int


@dataclass(slots=True)
class DiskFile:
    """One file: its durable state, and the values of each sector and of the length since."""

    durable: bytearray = field(default_factory=bytearray)
    versions: dict[int, list[_Version]] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    doubtful_sizes_before: int = 0

    @property
    def size(self) -> int:
        return self.sizes[-1][1] if self.sizes else len(self.durable)

    def _sector(self, sector: int) -> bytes:
        if versions := self.versions.get(sector):
            return versions[-1].data
        return bytes(self.durable[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]).ljust(
            SECTOR_BYTES, b"\0"
        )

    def _change(self, number: int, sector: int, version: _Version) -> None:
        self.versions.setdefault(sector, []).append(version)
        self.dirty.add(sector)

    def write(self, number: int, position: int, data: bytes) -> None:
        end = position + len(data)
        for sector in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            start = sector * SECTOR_BYTES
            low, high = max(position, start) - start, min(end, start + SECTOR_BYTES) - start
            content = bytearray(self._sector(sector))
            content[low:high] = data[start + low - position : start + high - position]
            self._change(number, sector, _Version(number, bytes(content), low, high))
        if end > min(self.size, len(self.durable)):  # the file may have been cut before
            # Also when the file is that long already: what makes these bytes durable makes them reachable.
            self.sizes.append((number, max(end, self.size)))

    def grow(self, number: int, size: int) -> None:
        if size > self.size:
            self.sizes.append((number, size))

    def cut(self, number: int, size: int) -> None:
        if size >= self.size:
            return self.grow(number, size)
        for sector in range(size // SECTOR_BYTES, -(-self.size // SECTOR_BYTES)):
            keep = max(0, size - sector * SECTOR_BYTES)
            content = self._sector(sector)[:keep].ljust(SECTOR_BYTES, b"\0")
            self._change(number, sector, _Version(number, content, 0, 0))
        self.sizes.append((number, size))
        return None

    def synced(self, started: int) -> None:
        """Apply a completed sync that began at operation `started`."""
        sizes = [size for at, size in self.sizes if self.doubtful_sizes_before <= at < started]
        size = sizes[-1] if sizes else len(self.durable)
        if sizes:
            self.sizes = [(at, size) for at, size in self.sizes if at >= started]
        for sector in sorted(self.dirty):
            covered = [version for version in self.versions[sector] if version.number < started]
            if not covered:
                continue
            start = sector * SECTOR_BYTES
            self.durable.extend(bytes(max(0, start + SECTOR_BYTES - len(self.durable))))
            self.durable[start : start + SECTOR_BYTES] = covered[-1].data
            self.versions[sector] = self.versions[sector][len(covered) :]
            if not self.versions[sector]:
                del self.versions[sector]
                self.dirty.discard(sector)
        self.durable.extend(bytes(max(0, size - len(self.durable))))
        del self.durable[size:]

    def sync_failed(self, number: int) -> None:
        self.dirty.clear()
        self.doubtful_sizes_before = number

    def image(self, rng: random.Random, loss: Loss) -> bytes:
        if loss is Loss.EVERYTHING:
            return bytes(self.durable)
        size = self.size
        if loss in (Loss.SECTORS, Loss.GARBAGE):
            size = self._drawn_size(rng)
        content = bytearray(self.durable)
        keep_likely = rng.choice((0.05, 0.3, 0.5, 0.8, 0.97))
        newest = max((versions[-1].number for versions in self.versions.values()), default=0)
        torn_at = rng.random()
        for sector, versions in sorted(self.versions.items()):
            version: _Version | None = versions[-1]
            if loss is Loss.LAST_TORN and versions[-1].number == newest and rng.random() < torn_at:
                version = versions[-2] if len(versions) > 1 else None
            elif loss in (Loss.SECTORS, Loss.GARBAGE) and rng.random() > keep_likely:
                version = rng.choice([None, *versions])
            if version is None:
                continue
            start = sector * SECTOR_BYTES
            content.extend(bytes(max(0, start + SECTOR_BYTES - len(content))))
            content[start : start + SECTOR_BYTES] = version.data
            if loss is Loss.GARBAGE and rng.random() < 0.3:
                content[start + version.low : start + version.high] = rng.randbytes(
                    version.high - version.low
                )
        content.extend(bytes(max(0, size - len(content))))
        return bytes(content[:size])

    def _drawn_size(self, rng: random.Random) -> int:
        sizes = [len(self.durable), *(size for _, size in self.sizes)]
        if rng.random() < 0.7:
            return rng.choice(sizes)
        return rng.randint(min(sizes), max(sizes))


_Change = Created | Renamed | Unlinked | DirectoryMade


def _apply_change(names: dict[str, int], change: _Change) -> None:
    match change:
        case Created(path, file):
            names[path.name] = file
        case DirectoryMade(path, directory):
            names[path.name] = directory
        case Unlinked(path, file):
            if names.get(path.name) == file:
                del names[path.name]
        case Renamed(source, target, file):
            if names.get(source.name) == file:
                del names[source.name]
            names[target.name] = file


@dataclass(slots=True)
class _Directory:
    """The names in one directory: the durable ones, and the changes since the last sync in order."""

    durable: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[int, _Change]] = field(default_factory=list)

    def synced(self, started: int) -> None:
        for number, change in self.changes:
            if number < started:
                _apply_change(self.durable, change)
        self.changes = [(number, change) for number, change in self.changes if number >= started]

    def image(self, rng: random.Random, loss: Loss) -> dict[str, int]:
        names = dict(self.durable)
        likely = {Loss.NOTHING: 1.0, Loss.LAST_TORN: 1.0, Loss.EVERYTHING: 0.0}.get(
            loss, rng.choice((0.2, 0.5, 0.9))
        )
        for _, change in self.changes:
            if rng.random() < likely:
                _apply_change(names, change)
        return names


@dataclass(frozen=True, slots=True)
class Image:
    """A directory tree after a power loss. Paths are relative to the root of the recorder."""

    directories: tuple[Path, ...]
    files: dict[Path, bytes]

    def write(self, root: Path) -> None:
        """Write the tree to `root`, which must not exist (and does not afterwards, when the root itself was lost)."""
        for directory in self.directories:
            (root / directory).mkdir()
        for path, data in self.files.items():
            (root / path).write_bytes(data)


class Disk:
    """The state of the disk while the operations of a recorder are replayed one by one."""

    def __init__(self, recorder: RecordingFiles) -> None:
        """End the recording of SQLite's operations: images may be opened where it was made."""
        recorder.stop()
        self._root = recorder.root
        self._files: dict[int, DiskFile] = {}
        self._numbers: dict[Path, int] = {self._root.parent: 0}
        """Directories by their present names."""
        self._directories: dict[int, _Directory] = {0: _Directory()}
        for path, directory in recorder.base_directories.items():
            self._made(path, directory)
            self._directory(path.parent).durable[path.name] = directory
        for path, file in recorder.base_files.items():
            self._files[file] = DiskFile(bytearray(recorder.base[path]))
            self._directory(path.parent).durable[path.name] = file

    def _directory(self, path: Path) -> _Directory:
        return self._directories[self._numbers[path]]

    def _made(self, path: Path, directory: int) -> None:
        self._numbers[path] = directory
        self._directories[directory] = _Directory()

    def apply(self, number: int, operation: Operation) -> None:
        """Advance by one operation; `number` is its place in the recorder's list."""
        match operation:
            case Written(file, position, data):
                self._files[file].write(number, position, data)
            case Reserved(file, end):
                self._files[file].grow(number, end)
            case Truncated(file, size):
                self._files[file].cut(number, size)
            case SyncEnded(file, started):
                self._files[file].synced(started)
            case SyncFailed(file):
                self._files[file].sync_failed(number)
            case CatalogChanged(file, data):
                self._files[file] = DiskFile(bytearray(data))
            case DirectorySynced(path, started):
                if path in self._numbers:
                    self._directory(path).synced(started)
            case Created() | DirectoryMade() | Unlinked() | Renamed():
                self._change(number, operation)

    def _change(self, number: int, change: _Change) -> None:
        path = change.source if isinstance(change, Renamed) else change.path
        self._directory(path.parent).changes.append((number, change))
        match change:
            case DirectoryMade(path, directory):
                self._made(path, directory)
            case Created(_, file):
                self._files[file] = DiskFile()
            case Renamed(source, target, file) if file < 0:
                for one in [one for one in self._numbers if one == source or source in one.parents]:
                    self._numbers[target / one.relative_to(source)] = self._numbers.pop(one)
            case Unlinked(path, file) if file < 0:
                del self._numbers[path]

    def image(self, rng: random.Random, loss: Loss) -> Image:
        """Return one tree that a power loss could leave at this moment."""
        directories: list[Path] = []
        files: dict[Path, bytes] = {}
        waiting = [(self._root.parent, 0)]
        while waiting:
            parent, number = waiting.pop()
            for name, file in sorted(self._directories[number].image(rng, loss).items()):
                path = parent / name
                if file < 0:
                    directories.append(path.relative_to(self._root))
                    waiting.append((path, file))
                else:
                    files[path.relative_to(self._root)] = self._files[file].image(rng, loss)
        return Image(tuple(directories), files)


def images(
    disk: Disk, seed: int, moment: int, each: int, kinds: int = 2
) -> Iterator[tuple[Loss, random.Random, Image]]:
    """Yield images of the disk at a moment of a run: `each` of a kind of loss, one where the kind leaves no choice. Of
    `kinds` kinds in turn, so that the moments before and after have the others; of all kinds in a soak run."""
    losses = list(Loss)
    if not is_soak():
        losses = [losses[(moment * kinds + number) % len(losses)] for number in range(kinds)]
    for loss in losses:
        for number in range(1 if loss in (Loss.NOTHING, Loss.EVERYTHING) else each):
            rng = random.Random(f"{seed}/{moment}/{loss.name}/{number}")
            yield loss, rng, disk.image(rng, loss)
