"""Reading every byte that a bucket has of a log, and comparing it with the checksums of the manifest.

Of a damaged segment it is found out which records are affected, by their own checksums."""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timestone.disk.files import Files
from timestone.format import names
from timestone.reading.segment_cache import SegmentCache
from timestone.segment import Segment
from timestone.upkeep.segment_check import SegmentCheck

from ..errors import DamagedObject, ObjectMissing
from ..objects.history import LogHistory
from ..objects.manifest import Chapter, StoredObject, StoredSegment

Progress = Callable[[str, int, int], None]
"""Called with the folder name of a log, and of how many bytes how many were read."""
_OBJECTS_AT_ONCE = 4
_SLICE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectDamage:
    """An object that is not what was uploaded."""

    object: str
    """Its name below the prefix."""
    reason: str
    first_offset: int | None = None
    """Of the records that cannot be read because of it: [first_offset, end_offset). None when that is not known, or no
    record is affected."""
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class LogVerification:
    """Findings in one log."""

    log: str
    partition: int
    start_offset: int
    end_offset: int
    object_count: int
    bytes: int
    damage: tuple[ObjectDamage, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the same as one object for `--json`."""
        return asdict(self)


def verify_log(history: LogHistory, progress: Progress = lambda log, done, total: None) -> LogVerification:
    """Read every object that the newest manifest of a log names. Raises UnsupportedFormat, BucketError when the bucket
    does not answer, OSError."""
    manifest, damage = history.manifest, []
    segments: list[StoredSegment] = []
    done = count = 0
    for chapter in manifest.chapters:
        try:
            segments += history.objects.chapter(chapter)
        except (DamagedObject, ObjectMissing) as error:
            damage.append(_of_chapter(history, chapter, error))
        done, count = done + chapter.object.size_bytes, count + 1
    segments += manifest.segments
    segments = [one for one in segments if one.end > manifest.start]
    others = [*(one.object for one in manifest.topics), *(one.object for one in manifest.dictionaries)]
    total = done + sum(one.size_bytes for one in segments) + sum(one.size_bytes for one in others)

    def check_segment(stored: StoredSegment) -> tuple[int, int, list[ObjectDamage]]:
        return 2, stored.size_bytes, list(_segment_damage(history, stored))

    def check_other(stored: StoredObject) -> tuple[int, int, list[ObjectDamage]]:
        reason = _reason(history, stored)
        found = [ObjectDamage(history.objects.name_of(stored), reason)] if reason else []
        return 1, stored.size_bytes, found

    with ThreadPoolExecutor(_OBJECTS_AT_ONCE) as pool:
        try:
            for results in (pool.map(check_other, others), pool.map(check_segment, segments)):
                for objects, size_bytes, found in results:
                    damage += found
                    count, done = count + objects, done + size_bytes
                    progress(history.folder, done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    place = manifest.place
    return LogVerification(
        place.log, place.partition, manifest.start, manifest.end, count, total, tuple(damage)
    )


def _reason(history: LogHistory, stored: StoredObject) -> str:
    """Return the reason why an object is damaged; empty if it is not. Raises BucketError."""
    try:
        for _ in history.objects.pieces(stored):
            pass
    except DamagedObject as error:
        return error.reason
    except ObjectMissing:
        return "it is missing"
    return ""


def _of_chapter(history: LogHistory, chapter: Chapter, error: DamagedObject | ObjectMissing) -> ObjectDamage:
    reason = error.reason if isinstance(error, DamagedObject) else "it is missing"
    first = max(chapter.base, history.manifest.start)
    return ObjectDamage(history.objects.name_of(chapter.object), reason, first, chapter.end)


def _segment_damage(history: LogHistory, stored: StoredSegment) -> Iterator[ObjectDamage]:
    wrong = {one.name: reason for one in (stored.segment, stored.index) if (reason := _reason(history, one))}
    if not wrong:
        return
    name, reason = next(iter(wrong.items()))
    name = history.objects.place.prefix + name
    if "it is missing" in wrong.values():
        yield ObjectDamage(name, reason, stored.base, stored.end)
        return
    lost = _damaged_offsets(history, stored)
    if not lost:
        yield ObjectDamage(name, reason)
    for first, end, detail in lost:
        yield ObjectDamage(name, f"{reason}: {detail}", first, end)


def _damaged_offsets(history: LogHistory, stored: StoredSegment) -> list[tuple[int, int, str]]:
    """Return the offsets of a segment whose records do not verify with its bytes as they are now."""
    files, objects = Files(), history.objects
    with tempfile.TemporaryDirectory(prefix="timestone-") as temporary:
        folder = Path(temporary)
        trailer = stored.trailer
        _copy(history, stored.segment, names.segment_path(folder, stored.base, trailer.generation))
        _copy(history, stored.index, names.index_path(folder, stored.base))
        number = trailer.frames.dictionary if trailer.frames else 0
        for one in history.manifest.dictionaries:
            if one.number == number:
                with suppress(DamagedObject, ObjectMissing):
                    names.dictionary_path(folder, number).write_bytes(objects.read(one.object))
        segment = Segment(files, folder, stored.base, trailer.log_id, SegmentCache(1), trailer=trailer)
        check = SegmentCheck(files, segment)
        for _ in check.slices(_SLICE_BYTES):
            pass
    return [(one.first, one.end, one.reason) for one in check.damaged if one.first < one.end]


def _copy(history: LogHistory, stored: StoredObject, path: Path) -> None:
    """Write the bytes of an object as they are."""
    with path.open("wb") as file:
        file.writelines(history.objects.bucket.stream(history.objects.name_of(stored)))
