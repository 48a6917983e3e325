"""The history of one log in a bucket, as its owner extends it: segment by segment, each with a manifest of its own.

What belongs here: which segment is next, what it needs, and when the bucket and the log contradict each other. The
order of a step is segment, index, topic names, dictionary, manifest. A step that is interrupted anywhere leaves objects
that no manifest names, and the next one begins from what the newest manifest says."""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from timestone.config import Compression, LogConfig
from timestone.disk.files import Files
from timestone.errors import TimestoneError
from timestone.format.identity import LogIdentity
from timestone.format.topics import TopicDictionary
from timestone.index import Trailer
from timestone.reading.remote_history import RemoteHistory
from timestone.reading.segment_list import SegmentList
from timestone.segment import Segment
from timestone.upkeep.segment_rewrites import Rewrites

from ..buckets.bucket import Bucket
from ..errors import HistoryDiverged, LeaderChanged
from ..objects.collector import delete_objects, unused_objects
from ..objects.layout import LogPlace, Version
from ..objects.manifest import Manifest, StoredSegment
from ..objects.manifests import LogObjects
from .ownership import Owner
from .segment_tail import SegmentTail
from .upload import (
    Pace,
    SegmentFiles,
    SegmentSource,
    check_stored,
    topics_needed,
    upload_dictionary,
    upload_segment,
    upload_topics,
)

_LOGGER = logging.getLogger("timestone.tiering")
_COMPRESSION_WAIT_S = 60.0
"""How long a sealed segment of a log with compression may stay as it is before it is uploaded like that."""

_TOPIC_OBJECTS_MOST = 64
FOLLOW_S = 10.0
"""How often a replica that does not lead looks for what the leader has uploaded."""
_BEHIND_S = (1.0, 10.0)
"""After how long it looks again while the bucket has more than it has itself: at first, and at most."""


class UploadedLog(Protocol):
    """Log, as the uploader sees it. Implemented by `timestone.log.Log`."""

    folder: Path
    topics: TopicDictionary
    config: LogConfig

    is_replicated: bool

    @property
    def rewrites(self) -> Rewrites: ...
    @property
    def segment_list(self) -> SegmentList: ...
    @property
    def local_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def has_ended(self) -> bool: ...

    def attach_history(self, history: RemoteHistory | None) -> None: ...
    def expect_upkeep(self) -> None: ...


class Backlog(NamedTuple):
    """Segments and bytes that wait to be uploaded."""

    segment_count: int
    size_bytes: int


@dataclass(slots=True)
class _Waiting:
    base: int
    since_s: float


class LogUploader:
    """One log, of the store that owns the prefix or of a replica. One thread at a time; `manifest` may be looked at by
    any."""

    def __init__(
        self,
        log: UploadedLog,
        bucket: Bucket,
        owner: Owner,
        files: Files,
        now_us: Callable[[], int],
        pace: Pace,
        known: Callable[["LogUploader", Manifest], None] = lambda uploader, manifest: None,
    ) -> None:
        """known: called with each manifest that was found or committed, again after an error."""
        identity: LogIdentity = log.topics.identity
        self.log = log
        self.objects = LogObjects(bucket, LogPlace(identity.log_id, identity.name, identity.partition))
        self.noted_end = 0
        """End of the newest manifest that the store has noted, until `manifest` is known."""
        self.manifest: Manifest | None = None
        """The newest, once it is known: committed by this process, or found."""
        self._owner = owner
        self._generation: int | None = None
        """With which this step uploads; None while another replica does."""
        self._follow_at_s, self._behind_s = 0.0, _BEHIND_S[0]
        self._seen_start = 0
        """Local start of a replica before the last look at the bucket."""
        self._files = files
        self._now_us = now_us
        self._pace = pace
        self._waiting: _Waiting | None = None
        self._known = known
        self._is_told = False
        self._made: tuple[Version, int, float] | None = None
        """The newest manifest, when the object store made it, and when that was looked up."""
        self.expired_to = 0
        """Records below it are past the retention of the log; the next manifest leaves them out."""
        self._unsure: Manifest | None = None
        """A manifest that may have been committed: the answer was lost."""

    @property
    def is_tiered(self) -> bool:
        """Compacted logs stay where they are: what is uploaded is never rewritten."""
        return not self.log.config.compact

    def load(self) -> Manifest:
        """Return the state of the log in the bucket; an empty one if there is none. Raises HistoryDiverged,
        DamagedObject, UnsupportedFormat, PrefixInUse, BucketError."""
        if self._unsure is not None:
            self.commit(self._unsure)  # the same bytes under the same name: that finds out, and does no harm
        if self.manifest is None:
            self._keep_from_ending()
            self._seen_start = self.log.local_start_offset
            found = self.objects.newest()
            if found is not None:
                self._check_same(found)
            self._take(found or self._empty())
        assert self.manifest is not None
        return self.manifest

    def backlog(self) -> Backlog:
        """Return what is sealed and, as far as is known, not in the bucket yet."""
        if not self.is_tiered:
            return Backlog(0, 0)
        end = self.manifest.end if self.manifest else self.noted_end
        waiting = [
            one.trailer for one in self.log.rewrites.segments() if one.trailer and one.end_offset > end
        ]
        return Backlog(len(waiting), sum(one.stored_bytes + one.file_bytes for one in waiting))

    def step(self) -> float | None:
        """Upload the next segment, or leave out what has expired, and commit. Returns in how many seconds there may be
        more: 0 for at once, None when everything sealed is in the bucket. Raises what `load` does, LeaderChanged,
        SegmentChanged, OSError."""
        if not self.is_tiered or self.log.has_ended:
            return None
        if not self._is_owner():
            return self._follow()
        try:
            return self._extend()
        except (TimestoneError, OSError) as error:
            if self._owner.generation == self._generation:
                raise
            # A replica that leads no more may be cut, or lose all of its files, at any moment.
            raise LeaderChanged(
                f"{self.log.folder}: this replica does not lead it any more: {error}"
            ) from error

    def _extend(self) -> float | None:
        before = self.load()
        self._tell()
        if before.start < self.expired_to and before.segment_count:
            self.commit(self.following(before.starting_at(self.expired_to)))
            return 0.0
        segment = next(
            (one for one in self.log.rewrites.segments() if one.end_offset > before.end and one.count), None
        )
        if segment is None:
            return None
        is_tail = segment.base_offset < before.end and before.segment_count > 0
        if is_tail and not self.log.is_replicated:
            raise HistoryDiverged(
                f"{self.log.folder}: the bucket ends at offset {before.end}, in the middle of a segment of the log"
            )
        if not is_tail and (wait_s := self._wait_for_compression(segment)) > 0:
            return wait_s
        self._upload(before, segment, is_tail=is_tail)
        return 0.0

    def _is_owner(self) -> bool:
        if self._owner.generation != self._generation:
            self._generation = self._owner.generation
            self.manifest = self._unsure = None  # another one may have uploaded since
            self._follow_at_s = 0.0
        return self._generation is not None

    def has_seen(self, local_start: int) -> bool:
        """Return whether the bucket was asked since the log begins there on the disk, or the log is led here."""
        if self._generation is not None and self._owner.generation == self._generation:
            return True
        return local_start <= max(0 if self.manifest is None else self.manifest.end, self._seen_start)

    def _follow(self) -> float | None:
        """Take note now and then of what the leader has uploaded, for readers; at once when the replica begins behind
        what is known. Returns in how many seconds to look again; None for `FOLLOW_S`."""
        self._tell()
        start = self.log.local_start_offset
        has_seen = self.has_seen(start)
        if has_seen and time.monotonic() < self._follow_at_s:
            return None
        self._follow_at_s = time.monotonic() + FOLLOW_S
        if has_seen and self.manifest is not None and not any(self.objects.versions(self.manifest.version)):
            return None
        found = self.objects.newest()
        if found is None:
            if has_seen:
                return None
            found = self._empty()
        if found.end > self.log.end_offset:
            self._follow_at_s, pause_s = 0.0, self._behind_s
            self._behind_s = min(2 * pause_s, _BEHIND_S[1])
            return pause_s
        self._seen_start, self._behind_s = start, _BEHIND_S[0]
        self._take(found)
        return None

    def commit(self, manifest: Manifest) -> None:
        """Make the next manifest of this generation the state of the log. Raises PrefixInUse, LeaderChanged,
        BucketError."""
        self._owner.check()
        if self._owner.generation != self._generation:
            raise LeaderChanged(f"{self.log.folder}: this replica does not lead it any more")
        self._unsure = manifest
        self.objects.commit(manifest)
        self._unsure = None
        self._take(manifest)

    def expire(self, start_offset: int) -> None:
        """Have the history begin at an offset at the earliest. Any thread may call."""
        self.expired_to = max(self.expired_to, start_offset)

    def collect(self, delay_us: int) -> int:
        """Delete the objects of the log that nothing has needed for a delay, and return how many. Time is that of the
        object store when it made the newest manifest, and what has passed here since: no clock that is set matters.
        Raises PrefixInUse, DamagedObject, UnsupportedFormat, BucketError."""
        if not self._is_owner() or self.manifest is None or not self.manifest.version.generation:
            return 0
        self._keep_from_ending()
        if self._made is None or self._made[0] != self.manifest.version:
            facts = self.objects.bucket.head(self.objects.place.manifest(self.manifest.version))
            self._made = (self.manifest.version, facts.modified_us, time.monotonic())
        _, made_us, seen_s = self._made
        now_us = made_us + int((time.monotonic() - seen_s) * 1e6)
        unused = unused_objects(self.objects, before_us=now_us - delay_us)
        if unused:
            self._owner.check()
            delete_objects(self.objects.bucket, unused)
        return len(unused)

    def _keep_from_ending(self) -> None:
        """Take it back when the log was forgotten by mistake: it is there. Raises BucketError."""
        if self.log.has_ended:
            return
        newest = max(self.objects.versions(), default=None)
        if newest is not None and newest.is_end:
            _LOGGER.warning(
                "%s: it was forgotten in the bucket, but is still in the store: kept", self.log.folder
            )
            self.objects.bucket.delete([self.objects.place.manifest(newest)])

    def _take(self, manifest: Manifest) -> None:
        self.manifest, self._is_told = manifest, False
        self._tell()

    def _tell(self) -> None:
        if self.manifest is not None and not self._is_told:
            self._known(self, self.manifest)
            self._is_told = True

    def following(self, before: Manifest) -> Manifest:
        """Return the next manifest, with the contents of the current one."""
        generation = self._generation
        assert generation is not None
        if generation < before.version.generation:
            raise HistoryDiverged(
                f"{self.log.folder}: its history in the bucket is of generation {before.version.generation}, this "
                f"store uploads with {generation}: a cluster has uploaded it; choose another prefix"
            )
        number = before.version.number + 1 if before.version.generation == generation else 0
        return replace(before, version=Version(generation, number), written_us=self._now_us())

    def _upload(self, before: Manifest, segment: Segment, *, is_tail: bool) -> None:
        """Upload a segment, or what the bucket lacks of it, and commit the manifest that names it as well."""
        generation = self._generation
        assert generation is not None
        source: SegmentSource = (
            SegmentTail(self._files, self.log.folder, segment, before.end)
            if is_tail
            else SegmentFiles(self._files, segment)
        )
        with closing(source):
            stored = upload_segment(self.objects, generation, source, self._pace)
        check_stored(self.objects, stored.segment)
        check_stored(self.objects, stored.index)
        manifest = replace(
            self._with_topics(self._with_dictionary(before, stored.trailer), segment),
            start=before.start if before.segment_count else segment.base_offset,
            end=stored.end,
            segments=(*before.segments, stored),
            settings=asdict(self.log.config),
            missing=self._missing(before, stored.end),
        )
        self.commit(self.following(self.objects.shortened(manifest, generation)))

    def _with_topics(self, manifest: Manifest, segment: Segment) -> Manifest:
        end = topics_needed(segment)
        if end <= manifest.topic_count:
            return manifest
        generation = self._generation
        assert generation is not None
        # Those who read a log fetch all of its names: many small objects become one now and then.
        kept = manifest.topics if len(manifest.topics) < _TOPIC_OBJECTS_MOST else ()
        added = upload_topics(self.objects, generation, self.log.topics, kept[-1].end if kept else 0, end)
        return replace(manifest, topics=(*kept, added))

    def _with_dictionary(self, manifest: Manifest, trailer: Trailer) -> Manifest:
        number = trailer.frames.dictionary if trailer.frames else 0
        if not number or any(one.number == number for one in manifest.dictionaries):
            return manifest
        generation = self._generation
        assert generation is not None
        added = upload_dictionary(self.objects, generation, self._files, self.log.folder, number)
        return replace(manifest, dictionaries=(*manifest.dictionaries, added))

    def _missing(self, before: Manifest, end: int) -> tuple[tuple[int, int], ...]:
        known = [(gap.first, gap.end) for gap in self.log.segment_list.missing if gap.first < end]
        return tuple(sorted({*before.missing, *known}))

    def _wait_for_compression(self, segment: Segment) -> float:
        """Return the seconds to wait for a segment to be compressed in the background, so that it is uploaded once."""
        if self.log.config.compression is Compression.NONE:
            return 0.0
        if segment.trailer is None or segment.trailer.frames is not None:
            return 0.0
        now_s = time.monotonic()
        if self._waiting is None or self._waiting.base != segment.base_offset:
            self._waiting = _Waiting(segment.base_offset, now_s)
        return min(1.0, self._waiting.since_s + _COMPRESSION_WAIT_S - now_s)

    def _empty(self) -> Manifest:
        identity = self.log.topics.identity
        return Manifest(
            self.objects.place, Version(0, 0), identity.created_us, self._now_us(), start=0, end=0
        )

    def _check_same(self, found: Manifest) -> None:
        """Raise HistoryDiverged unless the newest segments of the bucket are those of the log."""
        if found.end > self.log.end_offset:
            raise HistoryDiverged(
                f"{self.log.folder}: it ends at offset {self.log.end_offset}, its history in the bucket at "
                f"{found.end}: the log is an older copy; restore it from the bucket, or choose another prefix"
            )
        if self.log.is_replicated:  # the segments of another leader may be longer; it had the same records
            return
        local = {one.base_offset: one for one in self.log.segment_list.sealed()}
        for stored in found.segments:
            segment = local.get(stored.base)
            if segment is not None and not _is_same(segment, stored):
                raise HistoryDiverged(
                    f"{self.log.folder}: the records from offset {stored.base} on are not those of its history in "
                    "the bucket; restore the log from the bucket, or choose another prefix"
                )


def _is_same(segment: Segment, stored: StoredSegment) -> bool:
    """Do both hold the same records? Compression changes the files, not what the trailer says of the records."""
    return segment.trailer is None or _facts(segment.trailer) == _facts(stored.trailer)


def _facts(trailer: Trailer) -> tuple[int, ...]:
    """Return facts that distinguish records from others at the same offsets: no two segments have both timestamps in
    common. (`entries_crc` does not: a crc over entries that end with their own is the same for all that are valid.)"""
    return (trailer.entry_count, trailer.segment_bytes, trailer.first_timestamp_us, trailer.last_timestamp_us)
