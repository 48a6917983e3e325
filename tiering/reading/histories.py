"""What a bucket holds of the logs of a store, for their readers, and copies of the manifests on the local disk.

A copy is durable before the local segments that it names may go. So a store that starts while its bucket is away knows
where each log begins, and reads what the cache has."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from timestone.disk.files import Files
from timestone.errors import TimestoneError
from timestone.format.names import TEMPORARY_SUFFIX
from timestone.reading.remote_history import RemoteHistory
from timestone.reading.segment_list import LostRange
from timestone.segment import SegmentCache

from ..buckets.bucket import Bucket
from ..errors import HistoryDiverged
from ..objects.layout import MANIFEST_SUFFIX, LogPlace, Version
from ..objects.manifest import Manifest, StoredSegment
from ..objects.manifests import LogObjects
from .fetched_segments import FetchedSegments, dictionary_of
from .remote_segment import RemoteSegment

_LOGGER = logging.getLogger("timestone.tiering")
_TRIES = 3


class Histories:
    """Histories of logs in one bucket. Any thread may call, for one log one at a time."""

    def __init__(
        self, folder: Path, fetched: FetchedSegments, files: Files, open_segments: SegmentCache
    ) -> None:
        """folder: of the copies; made by the first `note`."""
        self._folder = folder
        self._fetched = fetched
        self._files = files
        self._open_segments = open_segments
        self._segments: dict[int, dict[str, RemoteSegment]] = {}

    def known(self, bucket: Bucket, place: LogPlace) -> RemoteHistory | None:
        """Return the history of a log from its local copy, unconfirmed; None if there is no usable one."""
        manifest = newest_copy(self._files, self._folder, place)
        if manifest is None:
            return None
        try:
            return self._history(LogObjects(bucket, place), manifest, manifest.start, confirmed=False)
        except TimestoneError as error:
            _LOGGER.warning("%s: not used: %s", _path(self._folder, place, manifest.version), error)
            return None

    def newest(self, bucket: Bucket, place: LogPlace) -> RemoteHistory | None:
        """Return the history of a log from the newest manifest of the bucket, unconfirmed; None if it has none. Raises
        DamagedObject, UnsupportedFormat, BucketError."""
        objects = LogObjects(bucket, place)
        manifest = objects.newest()
        if manifest is None:
            return None
        return self._history(objects, _whole(objects, manifest), manifest.start, confirmed=False)

    def note(self, objects: LogObjects, manifest: Manifest, start: int) -> RemoteHistory:
        """Keep a copy of the manifest that the owner of a log has found or committed, and return its history. start:
        see `RemoteHistory`. Raises HistoryDiverged if the copy is newer, which means that the bucket has lost
        something; DamagedObject, BucketError, OSError."""
        self._check_newer(objects, manifest)
        whole = _whole(objects, manifest)
        if whole.segments or _copies(self._files, self._folder, manifest.place):
            self._keep(whole)
        return self._history(objects, whole, start, confirmed=True)

    def _history(
        self, objects: LogObjects, manifest: Manifest, start: int, *, confirmed: bool
    ) -> RemoteHistory:
        made = self._segments.get(manifest.place.log_id, {})
        segments = {
            stored.segment.name: made.get(stored.segment.name) or self._segment(objects, manifest, stored)
            for stored in manifest.segments
            if stored.end > start
        }
        self._segments[manifest.place.log_id] = segments
        missing = tuple(LostRange(*gap) for gap in manifest.missing if gap[1] > start)
        start = min(max(manifest.start, start), manifest.end)
        return RemoteHistory(start, manifest.end, tuple(segments.values()), missing, confirmed)

    def _segment(self, objects: LogObjects, manifest: Manifest, stored: StoredSegment) -> RemoteSegment:
        dictionary = dictionary_of(manifest, stored)
        return RemoteSegment(self._fetched, objects, stored, dictionary, self._files, self._open_segments)

    def _check_newer(self, objects: LogObjects, manifest: Manifest) -> None:
        copied = max(
            (version for version, _ in _copies(self._files, self._folder, manifest.place)),
            default=manifest.version,
        )
        if copied > manifest.version:
            raise HistoryDiverged(
                f"{objects.bucket.url}: it lacks {manifest.place.manifest(copied)}, which this store has committed: "
                "it was emptied, or is another one. Bring its objects back, or, if they are gone for good, stop the "
                f"store, delete {self._folder} and start again"
            )

    def _keep(self, manifest: Manifest) -> None:
        """Replace the copy. Raises OSError."""
        self._files.make_directories(self._folder)
        path = _path(self._folder, manifest.place, manifest.version)
        older = [
            name
            for version, name in _copies(self._files, self._folder, manifest.place)
            if version != manifest.version
        ]
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        with suppress(FileNotFoundError):
            self._files.unlink(temporary)
        self._files.write_file(temporary, manifest.encode())
        self._files.rename(temporary, path)
        self._files.sync_directory(self._folder)
        for name in older:
            self._files.unlink(self._folder / name)


def newest_copy(files: Files, folder: Path, place: LogPlace) -> Manifest | None:
    """Return the newest manifest of a log from its local copies; None if there is no usable one."""
    for _ in range(_TRIES):
        version = max((version for version, _ in _copies(files, folder, place)), default=None)
        if version is None:
            return None
        path = _path(folder, place, version)
        try:
            return Manifest.decode(files.read_file(path), place, version)
        except FileNotFoundError:  # the owner has replaced it since it was listed
            continue
        except (TimestoneError, OSError) as error:
            _LOGGER.warning("%s: not used: %s", path, error)
            return None
    return None


def _whole(objects: LogObjects, manifest: Manifest) -> Manifest:
    """Return the same manifest without chapters."""
    return replace(manifest, segments=tuple(objects.segments(manifest)), chapters=())


def _copies(files: Files, folder: Path, place: LogPlace) -> Sequence[tuple[Version, str]]:
    begin = f"{place.log_id:016x}-"
    found = []
    try:
        names = files.names(folder)
    except FileNotFoundError:
        return []
    for name in names:
        if name.startswith(begin) and name.endswith(MANIFEST_SUFFIX):
            version = place.parse_manifest(name.removeprefix(begin))
            if version is not None:
                found.append((version, name))
    return found


def _path(folder: Path, place: LogPlace, version: Version) -> Path:
    return folder / f"{place.log_id:016x}-{place.manifest(version).removeprefix(place.manifests)}"
