"""Uploading one sealed segment: its files as they are, then the topic names and the dictionary that it needs.

What belongs here: which bytes, in which order, and their hashes. Which segment is next, and the manifest that makes it
count, is up to `log_uploader`."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.topics import TopicDictionary
from timestone.index import TRAILER_BYTES, DamagedIndex, Trailer
from timestone.kernel.entries import NO_TOPIC
from timestone.segment import Segment

from ..buckets.bucket import PIECE_BYTES
from ..errors import DamagedObject, TieringError
from ..objects.layout import INDEX_SUFFIX, SEGMENT_SUFFIX, short_hash
from ..objects.manifest import StoredDictionary, StoredObject, StoredSegment, StoredTopics, content_hash
from ..objects.manifests import LogObjects

Pace = Callable[[int], None]
"""Called with the size of each piece before it is handed over; waits as long as the budget wants. May raise."""


class SegmentChanged(TieringError):
    """The files of a segment were rewritten or deleted since it was chosen: choose again."""


class SegmentSource(Protocol):
    """Bytes and facts of what is uploaded as one segment."""

    @property
    def trailer(self) -> Trailer: ...
    @property
    def epoch(self) -> int | None: ...
    def segment(self) -> Iterator[bytes]: ...
    def index(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class SegmentFiles:
    """The files of a sealed segment, open: what they hold stays, also when the names go."""

    def __init__(self, files: Files, segment: Segment) -> None:
        """Raises SegmentChanged when they are not those of this trailer, OSError."""
        assert segment.trailer is not None
        self._files = files
        self.trailer: Trailer = segment.trailer
        self.epoch = segment.epoch
        try:
            self._segment_fd = files.open(segment.segment_path)
        except FileNotFoundError:
            raise SegmentChanged(f"{segment.segment_path} was replaced or deleted") from None
        try:
            self._index_fd = files.open(segment.index_path)
        except FileNotFoundError:
            files.close(self._segment_fd)
            raise SegmentChanged(f"{segment.index_path} was replaced or deleted") from None
        if self._found_trailer(segment.index_path) != self.trailer:
            self.close()
            raise SegmentChanged(f"{segment.index_path} was replaced")

    def close(self) -> None:
        self._files.close(self._segment_fd)
        self._files.close(self._index_fd)

    def segment(self) -> Iterator[bytes]:
        """Yield the pieces of the segment."""
        return self._pieces(self._segment_fd, self.trailer.stored_bytes)

    def index(self) -> Iterator[bytes]:
        """Yield the pieces of the index."""
        return self._pieces(self._index_fd, self.trailer.file_bytes)

    def _pieces(self, fd: int, size_bytes: int) -> Iterator[bytes]:
        return file_pieces(self._files, fd, size_bytes, self.trailer.base_offset)

    def _found_trailer(self, path: Path) -> Trailer | None:
        start = self.trailer.file_bytes - TRAILER_BYTES
        try:
            return Trailer.decode(self._files.pread(self._index_fd, TRAILER_BYTES, start), path)
        except DamagedIndex:
            return None


def file_pieces(files: Files, fd: int, size_bytes: int, base: int) -> Iterator[bytes]:
    """Yield the first bytes of a file of the segment of an offset. Raises SegmentChanged for a shorter one, OSError."""
    position = 0
    while position < size_bytes:
        piece = files.read_all(fd, min(PIECE_BYTES, size_bytes - position), position)
        if not piece:
            raise SegmentChanged(f"a file of the segment of offset {base} ends early")
        position += len(piece)
        yield piece


def upload_segment(objects: LogObjects, generation: int, source: SegmentSource, pace: Pace) -> StoredSegment:
    """Upload the files of a segment, the index last. Raises SegmentChanged, BucketError, OSError, and what `pace`
    does."""
    trailer = source.trailer
    end = trailer.base_offset + trailer.entry_count
    stem = objects.place.segment_stem(trailer.base_offset, end, generation, short_hash(source.index()))
    segment = _upload(objects, stem + SEGMENT_SUFFIX, source.segment(), pace)
    index = _upload(objects, stem + INDEX_SUFFIX, source.index(), pace)
    return StoredSegment(trailer, source.epoch, segment, index)


def _upload(objects: LogObjects, name: str, pieces: Iterable[bytes], pace: Pace) -> StoredObject:
    found, size = content_hash(), 0

    def passing() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            pace(len(piece))
            found.update(piece)
            size += len(piece)
            yield piece

    tag = objects.bucket.write(name, passing())
    return StoredObject(name.removeprefix(objects.place.prefix), size, found.hexdigest(), tag)


def check_stored(objects: LogObjects, stored: StoredObject) -> None:
    """Ask the bucket for an object that was written. One with another entity tag than its write returned is read back.
    Raises DamagedObject, ObjectMissing, BucketError."""
    facts = objects.bucket.head(objects.name_of(stored))
    if facts.size_bytes != stored.size_bytes:
        raise DamagedObject(facts.name, f"expected {stored.size_bytes} bytes, got {facts.size_bytes}")
    if facts.tag == stored.tag:
        return
    for _ in objects.pieces(stored):
        pass


def upload_topics(
    objects: LogObjects, generation: int, topics: TopicDictionary, first: int, end: int
) -> StoredTopics:
    """Upload the names of the topic ids [first, end). Raises BucketError."""
    data = topics.encoded(first, end)
    name = objects.place.topics(first, end, generation, data)
    tag = objects.bucket.write(name, (data,))
    return StoredTopics(first, end, StoredObject.of(name.removeprefix(objects.place.prefix), data, tag))


def upload_dictionary(
    objects: LogObjects, generation: int, files: Files, folder: Path, number: int
) -> StoredDictionary:
    """Upload a compression dictionary. Raises BucketError, OSError."""
    data = files.read_file(names.dictionary_path(folder, number))
    name = objects.place.dictionary(number, generation, data)
    tag = objects.bucket.write(name, (data,))
    return StoredDictionary(number, StoredObject.of(name.removeprefix(objects.place.prefix), data, tag))


def topics_needed(segment: Segment) -> int:
    """Return how many topic ids have to have their names in the bucket for a sealed segment. They were flushed before
    its index was, so none of them can become another."""
    summary = segment.topic_summary()
    if summary is None:  # damaged: the entries say it, too
        summary = segment.read_entries(0, segment.count)
    used = summary["topic"][summary["topic"] != NO_TOPIC]
    return int(used.max()) + 1 if len(used) else 0
