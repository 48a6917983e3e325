"""The manifest of a log in a bucket: which objects are its segments. Bytes in, values out; no I/O.

One JSON object in one zstandard frame with a checksum; docs/formats/manifest.md has its fields. A manifest is written
once, under a name that sorts behind that of the one before. It is the commit point: an object that the newest
manifest does not name is not part of the log.

What is decoded is checked before it is used: a manifest that is damaged, or names what cannot be, is refused as a
whole, and one of a newer version is `UnsupportedFormat`."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import zstandard

from timestone.disk.json_document import integer, json_object
from timestone.errors import TimestoneError, UnsupportedFormat
from timestone.index import DamagedIndex, Trailer

from ..errors import DamagedObject
from .layout import GENERATION_MOST, INDEX_SUFFIX, SEGMENT_SUFFIX, LogPlace, Version

FORMAT = "timestone-manifest"
CHAPTER_FORMAT = "timestone-chapter"
FORMAT_VERSION = 1
SEGMENTS_MOST = 2000
"""A manifest with more segments moves the oldest CHAPTER_SEGMENTS of them to a chapter."""
CHAPTER_SEGMENTS = 1000
DECODED_BYTES_MOST = 64 << 20
_LEVEL = 6
_UINT64_MAX = (1 << 64) - 1
_OBJECT = re.compile(r"[a-z]+/[0-9a-f-]+(\.[a-z]+)*")
_HASH = re.compile(r"[0-9a-f]{32}")
_TAG_MOST = 1024

T = TypeVar("T")
Scalar = int | str | bool


def content_hash(data: bytes = b"") -> "blake2b":
    """Return the hash by which a manifest knows the bytes of an object."""
    return blake2b(data, digest_size=16)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its name below the log's prefix, and what its bytes have to be."""

    name: str
    size_bytes: int
    hash: str
    tag: str | None = None
    """The entity tag that the object store gave it; None when it gave none."""

    @classmethod
    def of(cls, name: str, data: bytes, tag: str | None = None) -> "StoredObject":
        """For an object with these bytes."""
        return cls(name, len(data), content_hash(data).hexdigest(), tag)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A sealed segment: its trailer, and the two objects that are its files."""

    trailer: Trailer
    epoch: int | None
    segment: StoredObject
    index: StoredObject

    @property
    def base(self) -> int:
        return self.trailer.base_offset

    @property
    def end(self) -> int:
        return self.trailer.base_offset + self.trailer.entry_count

    @property
    def size_bytes(self) -> int:
        """Total size of both objects."""
        return self.segment.size_bytes + self.index.size_bytes


@dataclass(frozen=True, slots=True)
class StoredTopics:
    """The names of the topic ids [first, end), as the log's topic dictionary has them on the disk."""

    first: int
    end: int
    object: StoredObject


@dataclass(frozen=True, slots=True)
class StoredDictionary:
    """A dictionary that compressed segments of the log refer to by its number."""

    number: int
    object: StoredObject


@dataclass(frozen=True, slots=True)
class Chapter:
    """Older segments of a log, listed in an object of their own."""

    base: int
    end: int
    segment_count: int
    size_bytes: int
    """What the objects of its segments take."""
    first_timestamp_us: int
    last_timestamp_us: int
    object: StoredObject


@dataclass(frozen=True, slots=True)
class Manifest:
    """The history of a log in a bucket as of one moment."""

    place: LogPlace
    version: Version
    created_us: int
    """When the log was made: part of its identity."""
    written_us: int
    start: int
    """Offsets below it were deleted, although a segment or chapter that is still named may hold some of them."""
    end: int
    """Behind the last record of the last segment."""
    segments: tuple[StoredSegment, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    """In front of the segments, in order."""
    topics: tuple[StoredTopics, ...] = ()
    dictionaries: tuple[StoredDictionary, ...] = ()
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """Of the log, as its owner had them when this was written; a restore gives them back."""
    missing: tuple[tuple[int, int], ...] = ()
    """Offsets that the owner of the log found lost to damage, as far as this history reaches."""

    @property
    def topic_count(self) -> int:
        """Number of topic ids whose names are in the bucket."""
        return self.topics[-1].end if self.topics else 0

    @property
    def segment_count(self) -> int:
        return len(self.segments) + sum(chapter.segment_count for chapter in self.chapters)

    @property
    def size_bytes(self) -> int:
        """Total size of the objects of all its segments."""
        own = sum(segment.size_bytes for segment in self.segments)
        return own + sum(chapter.size_bytes for chapter in self.chapters)

    def objects(self) -> Iterator[StoredObject]:
        """Yield each object that it names itself, without those that its chapters name."""
        for segment in self.segments:
            yield segment.segment
            yield segment.index
        yield from (one.object for one in self.topics)
        yield from (one.object for one in self.dictionaries)
        yield from (one.object for one in self.chapters)

    def starting_at(self, start: int) -> "Manifest":
        """Return the same history without what ends at or below an offset."""
        return replace(
            self,
            start=max(self.start, start),
            end=max(self.end, start),
            segments=tuple(segment for segment in self.segments if segment.end > start),
            chapters=tuple(chapter for chapter in self.chapters if chapter.end > start),
            missing=tuple(gap for gap in self.missing if gap[1] > start),
        )

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        return _packed(
            {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "log_id": f"{self.place.log_id:016x}",
                "log": self.place.log,
                "partition": self.place.partition,
                "created_us": self.created_us,
                "generation": self.version.generation,
                "number": self.version.number,
                "written_us": self.written_us,
                "start": self.start,
                "end": self.end,
                "chapters": [_chapter_fields(chapter) for chapter in self.chapters],
                "segments": [_segment_fields(segment) for segment in self.segments],
                "topics": [
                    {"first": one.first, "end": one.end, **_object_fields(one.object)} for one in self.topics
                ],
                "dictionaries": [
                    {"number": one.number, **_object_fields(one.object)} for one in self.dictionaries
                ],
                "settings": dict(self.settings),
                "missing": self.missing,
            }
        )

    @classmethod
    def decode(cls, data: bytes, place: LogPlace, version: Version) -> "Manifest":
        """Return the manifest of this log and version. Raises DamagedObject, UnsupportedFormat."""
        name = place.manifest(version)
        return _checked(name, lambda: cls._from(_unpacked(name, data, FORMAT), place, version))

    @classmethod
    def _from(cls, fields: dict[str, Any], place: LogPlace, version: Version) -> "Manifest":
        named = (fields.get("log_id"), fields.get("log"), fields.get("partition"))
        if named != (f"{place.log_id:016x}", place.log, place.partition):
            raise ValueError(f"invalid log: expected {place.prefix}, got {named}")
        found = Version(_number(fields, "generation"), _number(fields, "number"))
        if found != version:
            raise ValueError(f"invalid version: expected {version}, got {found}")
        manifest = cls(
            place,
            version,
            created_us=integer(fields.get("created_us")),
            written_us=integer(fields.get("written_us")),
            start=integer(fields.get("start")),
            end=integer(fields.get("end")),
            segments=tuple(_segment_from(one, place.log_id) for one in _list(fields, "segments")),
            chapters=tuple(map(_chapter_from, _list(fields, "chapters"))),
            topics=tuple(
                StoredTopics(integer(one.get("first")), integer(one.get("end")), _object_from(one))
                for one in _list(fields, "topics")
            ),
            dictionaries=tuple(
                StoredDictionary(integer(one.get("number"), 1), _object_from(one))
                for one in _list(fields, "dictionaries")
            ),
            settings=_settings_from(fields.get("settings")),
            missing=tuple((integer(first), integer(end)) for first, end in fields.get("missing", ())),
        )
        manifest._check()
        return manifest

    def _check(self) -> None:
        parts: list[Chapter | StoredSegment] = [*self.chapters, *self.segments]
        _check_order("segments", [(part.base, part.end) for part in parts])
        if parts and (parts[0].end <= self.start or parts[-1].end != self.end):
            raise ValueError(f"invalid bounds [{self.start}, {self.end}) for these segments")
        if not parts and self.start != self.end:
            raise ValueError(f"invalid bounds [{self.start}, {self.end}) without segments")
        ids = [(one.first, one.end) for one in self.topics]
        _check_order("topics", ids)
        if any(before[1] != after[0] for before, after in pairwise([(0, 0), *ids])):
            raise ValueError("invalid topics: an id has no name")


def encode_chapter(segments: Sequence[StoredSegment]) -> bytes:
    """Return the bytes of a chapter with these segments."""
    return _packed(
        {
            "format": CHAPTER_FORMAT,
            "version": FORMAT_VERSION,
            "segments": [_segment_fields(segment) for segment in segments],
        }
    )


def decode_chapter(data: bytes, chapter: Chapter, log_id: int) -> tuple[StoredSegment, ...]:
    """Return the segments of a chapter. Raises DamagedObject, UnsupportedFormat."""
    name = chapter.object.name

    def parsed() -> tuple[StoredSegment, ...]:
        fields = _unpacked(name, data, CHAPTER_FORMAT)
        segments = tuple(_segment_from(one, log_id) for one in _list(fields, "segments"))
        _check_order("segments", [(segment.base, segment.end) for segment in segments])
        if len(segments) != chapter.segment_count or not segments:
            raise ValueError(
                f"invalid chapter: expected {chapter.segment_count} segments, got {len(segments)}"
            )
        if (segments[0].base, segments[-1].end) != (chapter.base, chapter.end):
            raise ValueError(f"invalid chapter: expected the offsets [{chapter.base}, {chapter.end})")
        return segments

    return _checked(name, parsed)


def _packed(fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode()
    return zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compress(text)


def _unpacked(name: str, data: bytes, form: str) -> dict[str, Any]:
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= DECODED_BYTES_MOST:
        raise ValueError(f"invalid size: expected at most {DECODED_BYTES_MOST} bytes, got {size}")
    fields = json_object(zstandard.ZstdDecompressor().decompress(data))
    if fields.get("format") != form:
        raise ValueError(f"invalid format: expected {form}, got {fields.get('format')!r:.60}")
    version = integer(fields.get("version"))
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(Path(name), version, FORMAT_VERSION)
    return fields


def _checked(name: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except TimestoneError:
        raise
    except (ValueError, TypeError, AttributeError, zstandard.ZstdError, DamagedIndex) as error:
        raise DamagedObject(name, str(error)) from error


def _segment_fields(one: StoredSegment) -> dict[str, Any]:
    return {
        "base": one.base,
        "end": one.end,
        "epoch": one.epoch,
        "first_timestamp_us": one.trailer.first_timestamp_us,
        "last_timestamp_us": one.trailer.last_timestamp_us,
        "object": one.segment.name.removesuffix(SEGMENT_SUFFIX),
        "bytes": one.segment.size_bytes,
        "hash": one.segment.hash,
        "tag": one.segment.tag,
        "index_bytes": one.index.size_bytes,
        "index_hash": one.index.hash,
        "index_tag": one.index.tag,
        "trailer": base64.b64encode(one.trailer.encode()).decode(),
    }


def _segment_from(fields: dict[str, Any], log_id: int) -> StoredSegment:
    stem = _text(fields, "object", _OBJECT)
    try:
        raw = base64.b64decode(fields.get("trailer", ""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"invalid trailer: {error}") from None
    trailer = Trailer.decode(raw, Path(stem))
    one = StoredSegment(
        trailer,
        None if fields.get("epoch") is None else integer(fields["epoch"], most=_UINT64_MAX),
        StoredObject(
            stem + SEGMENT_SUFFIX,
            integer(fields.get("bytes")),
            _text(fields, "hash", _HASH),
            _tag(fields, "tag"),
        ),
        StoredObject(
            stem + INDEX_SUFFIX,
            integer(fields.get("index_bytes")),
            _text(fields, "index_hash", _HASH),
            _tag(fields, "index_tag"),
        ),
    )
    if trailer.log_id != log_id or trailer.entry_count == 0:
        raise ValueError(f"invalid trailer of {stem}: it is of another log, or of no records")
    said = tuple(fields.get(name) for name in ("base", "end", "first_timestamp_us", "last_timestamp_us"))
    if said != (one.base, one.end, trailer.first_timestamp_us, trailer.last_timestamp_us):
        raise ValueError(f"invalid segment {stem}: its trailer contradicts {said}")
    return one


def _chapter_fields(one: Chapter) -> dict[str, Any]:
    return {
        "base": one.base,
        "end": one.end,
        "segment_count": one.segment_count,
        "segment_bytes": one.size_bytes,
        "first_timestamp_us": one.first_timestamp_us,
        "last_timestamp_us": one.last_timestamp_us,
        **_object_fields(one.object),
    }


def _chapter_from(fields: dict[str, Any]) -> Chapter:
    return Chapter(
        integer(fields.get("base")),
        integer(fields.get("end")),
        integer(fields.get("segment_count"), 1),
        integer(fields.get("segment_bytes")),
        integer(fields.get("first_timestamp_us")),
        integer(fields.get("last_timestamp_us")),
        _object_from(fields),
    )


def _settings_from(values: object) -> dict[str, Scalar]:
    if not isinstance(values, dict) or not all(isinstance(value, Scalar) for value in values.values()):
        raise TypeError("invalid settings: expected an object of numbers, words and booleans")
    return values


def _object_fields(one: StoredObject) -> dict[str, Any]:
    return {"object": one.name, "bytes": one.size_bytes, "hash": one.hash, "tag": one.tag}


def _object_from(fields: dict[str, Any]) -> StoredObject:
    return StoredObject(
        _text(fields, "object", _OBJECT),
        integer(fields.get("bytes")),
        _text(fields, "hash", _HASH),
        _tag(fields, "tag"),
    )


def _list(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    values = fields.get(name)
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise TypeError(f"invalid {name}: expected a list of objects")
    return values


def _text(fields: dict[str, Any], name: str, form: re.Pattern[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"invalid {name}: {value!r:.100}")
    return value


def _tag(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _TAG_MOST):
        raise ValueError(f"invalid {name}: {value!r:.100}")
    return value


def _number(fields: dict[str, Any], name: str) -> int:
    return integer(fields.get(name), most=GENERATION_MOST)


def _check_order(what: str, bounds: Sequence[tuple[int, int]]) -> None:
    if any(first >= end for first, end in bounds) or any(
        before[1] > after[0] for before, after in pairwise(bounds)
    ):
        raise ValueError(f"invalid {what}: they overlap, or are out of order")
