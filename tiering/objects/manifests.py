"""The manifests of one log in a bucket: finding the newest, and committing the next."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from timestone.disk.files import Data

from ..buckets.bucket import Bucket
from ..errors import DamagedObject, ObjectExists, ObjectMissing, PrefixInUse
from .layout import GENERATION_MOST, LogPlace, Version
from .manifest import (
    CHAPTER_SEGMENTS,
    SEGMENTS_MOST,
    Chapter,
    Manifest,
    StoredObject,
    StoredSegment,
    content_hash,
    decode_chapter,
    encode_chapter,
)

_TRIES = 3


class LogObjects:
    """The objects of one log. Any thread may call."""

    def __init__(self, bucket: Bucket, place: LogPlace) -> None:
        self.bucket = bucket
        self.place = place
        self._chapters: dict[str, tuple[StoredSegment, ...]] = {}

    def newest(self) -> Manifest | None:
        """Return the state of the log in the bucket; None if there is none, or the log was forgotten. Raises
        DamagedObject, UnsupportedFormat, BucketError."""
        for remaining in reversed(range(_TRIES)):
            version = max(self.versions(), default=None)
            if version is None or version.is_end:
                return None
            try:
                return Manifest.decode(self.bucket.read(self.place.manifest(version)), self.place, version)
            except ObjectMissing:  # a newer one was committed and this one deleted, in between
                if not remaining:
                    raise
        raise AssertionError("unreachable")

    def versions(self, after: Version | None = None) -> Iterator[Version]:
        """Yield the versions of the manifests that are there, in order. Raises BucketError."""
        behind = "" if after is None else self.place.manifest(after)
        for facts in self.bucket.objects(self.place.manifests, after=behind):
            if (version := self.place.parse_manifest(facts.name)) is not None:
                yield version

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the state of the log. Raises PrefixInUse when there is another one of its name, which only
        a second owner can have made; BucketError, after which the same call finds out."""
        name, data = self.place.manifest(manifest.version), manifest.encode()
        try:
            self.bucket.create(name, data)
        except ObjectExists:
            if self.bucket.read(name) != data:  # else the answer to an earlier try was lost
                raise PrefixInUse(f"{self.bucket.url}: {name} was written by another store") from None

    def end(self, manifest: Manifest) -> None:
        """Have no reader find the log any more. What its manifests name is unused from now on. Raises BucketError."""
        version = Version(manifest.version.generation, GENERATION_MOST)
        empty = Manifest(
            self.place, version, manifest.created_us, manifest.written_us, manifest.end, manifest.end
        )
        with suppress(ObjectExists):
            self.bucket.create(self.place.manifest(version), empty.encode())

    def segments(self, manifest: Manifest) -> list[StoredSegment]:
        """Return all segments that a manifest and its chapters name and that end above its start, in order. Raises
        DamagedObject, BucketError."""
        older = [segment for chapter in manifest.chapters for segment in self.chapter(chapter)]
        return [segment for segment in (*older, *manifest.segments) if segment.end > manifest.start]

    def chapter(self, chapter: Chapter) -> tuple[StoredSegment, ...]:
        """Return the segments that a chapter lists; read once."""
        found = self._chapters.get(chapter.object.name)
        if found is None:
            data = self.read(chapter.object)
            found = self._chapters[chapter.object.name] = decode_chapter(data, chapter, self.place.log_id)
        return found

    def read(self, stored: StoredObject) -> bytes:
        """Return an object of the log as it was uploaded. Raises DamagedObject, BucketError."""
        return b"".join(self.pieces(stored))

    def pieces(self, stored: StoredObject) -> Iterator[Data]:
        """Yield the bytes of an object in order, in pieces that fit into memory. Raises DamagedObject, at the end at
        the latest, unless they are those that were uploaded, no fewer and no more; BucketError."""
        name, found, position = self.name_of(stored), content_hash(), 0
        for piece in self.bucket.stream(name):
            position += len(piece)
            if position > stored.size_bytes:
                break
            found.update(piece)
            yield piece
        if position != stored.size_bytes:
            raise DamagedObject(name, f"expected {stored.size_bytes} bytes, got {position}")
        if found.hexdigest() != stored.hash:
            raise DamagedObject(name, "its bytes are not those that were uploaded")

    def name_of(self, stored: StoredObject) -> str:
        """Return the name of an object below the bucket's prefix: manifests name them below the log's."""
        return self.place.prefix + stored.name

    def shortened(self, manifest: Manifest, generation: int) -> Manifest:
        """Return the same history with its oldest segments moved to a chapter, which is written, when it lists very
        many. Raises BucketError."""
        if len(manifest.segments) <= SEGMENTS_MOST:
            return manifest
        moved, left = manifest.segments[:CHAPTER_SEGMENTS], manifest.segments[CHAPTER_SEGMENTS:]
        data = encode_chapter(moved)
        name = self.place.chapter(moved[0].base, moved[-1].end, generation, data)
        tag = self.bucket.write(name, (data,))
        chapter = Chapter(
            moved[0].base,
            moved[-1].end,
            len(moved),
            sum(segment.size_bytes for segment in moved),
            min(segment.trailer.first_timestamp_us for segment in moved),
            max(segment.trailer.last_timestamp_us for segment in moved),
            StoredObject.of(name.removeprefix(self.place.prefix), data, tag),
        )
        self._chapters[chapter.object.name] = moved
        return replace(manifest, segments=left, chapters=(*manifest.chapters, chapter))
