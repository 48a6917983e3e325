"""The bytes of a manifest: written, read back, and refused when they are anything else."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import UnsupportedFormat
from timestone.index import Trailer
from timestone_tiering.errors import DamagedObject
from timestone_tiering.objects.layout import LogPlace, Version
from timestone_tiering.objects.manifest import (
    Chapter,
    Manifest,
    StoredDictionary,
    StoredObject,
    StoredSegment,
    StoredTopics,
    decode_chapter,
    encode_chapter,
)

PLACE = LogPlace(0x0123456789ABCDEF, "telemetry", 0)
VERSION = Version(2, 17)
GOLDEN = Path(__file__).parents[2] / "golden" / "manifest" / "v1.json.zst"


def stored(name: str, data: bytes = b"content", tag: str | None = '"etag"') -> StoredObject:
    return StoredObject.of(name, data, tag)


def segment(base: int, end: int) -> StoredSegment:
    trailer = Trailer(PLACE.log_id, base, end - base, 100, 1_000 + base, 1_000 + end, 9_000, 1, 2, 3, 4, 100)
    stem = f"segments/{base:020d}-{end:020d}-0000000002-00112233445566aa"
    return StoredSegment(trailer, 1, stored(f"{stem}.segment"), stored(f"{stem}.index", tag=None))


def chapter_of(segments: list[StoredSegment], data: bytes) -> Chapter:
    name = "chapters/0-20-0000000002-00112233445566aa.json.zst"
    return Chapter(
        segments[0].base, segments[-1].end, len(segments), 14 * 4, 1_000, 1_020, stored(name, data)
    )


def manifest() -> Manifest:
    older = [segment(0, 10), segment(10, 20)]
    return Manifest(
        PLACE,
        VERSION,
        created_us=5,
        written_us=6,
        start=3,
        end=45,
        segments=(segment(20, 30), segment(35, 45)),
        chapters=(chapter_of(older, encode_chapter(older)),),
        topics=(
            StoredTopics(0, 2, stored("topics/0-2-0000000002-00112233445566aa.topics")),
            StoredTopics(2, 5, stored("topics/2-5-0000000002-00112233445566aa.topics")),
        ),
        dictionaries=(StoredDictionary(1, stored("dictionaries/1-0000000002-00112233445566aa.dictionary")),),
        settings={"retention_ms": 86_400_000, "compression": "zstd", "compact": False},
        missing=((30, 32),),
    )


def changed(**fields: Any) -> bytes:
    values = json.loads(zstandard.ZstdDecompressor().decompress(manifest().encode()))
    for name, value in fields.items():
        if name in ("base", "end", "object", "trailer", "hash", "bytes") and name not in values | {"end": 0}:
            values["segments"][0][name] = value
        else:
            values[name] = value
    return zstandard.ZstdCompressor().compress(json.dumps(values).encode())


def test_manifest_is_read_back_as_it_was_written() -> None:
    assert Manifest.decode(manifest().encode(), PLACE, VERSION) == manifest()


def test_manifest_of_the_first_version_is_still_read() -> None:
    assert Manifest.decode(GOLDEN.read_bytes(), PLACE, VERSION) == manifest()


def test_an_empty_history_is_a_manifest() -> None:
    empty = Manifest(PLACE, Version(1, 0), created_us=1, written_us=1, start=7, end=7)
    assert Manifest.decode(empty.encode(), PLACE, Version(1, 0)) == empty


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "other"},
        {"log_id": "0" * 16},
        {"log": "another"},
        {"generation": 3},
        {"number": 10**10},
        {"start": -1},
        {"start": 50},
        {"end": 44},
        {"end": "45"},
        {"segments": {}},
        {"segments": [1]},
        {"topics": [{"first": 1, "end": 2, "object": "topics/x", "bytes": 1, "hash": "0" * 32, "tag": None}]},
        {"base": 21},
        {"object": "../../etc/passwd"},
        {"object": "/segments/0"},
        {"trailer": "AAAA"},
        {"trailer": "?"},
        {"hash": "0"},
        {"bytes": -1},
        {"settings": [1]},
        {"settings": {"retention_ms": [1]}},
        {"missing": [[1]]},
        {"missing": 3},
    ],
    ids=str,
)
def test_manifest_is_refused_when_a_field_is_not_valid(fields: dict[str, Any]) -> None:
    with pytest.raises(DamagedObject, match="manifest/0000000002-0000000017"):
        Manifest.decode(changed(**fields), PLACE, VERSION)


def test_manifest_of_a_newer_version_is_unsupported_not_damaged() -> None:
    with pytest.raises(UnsupportedFormat):
        Manifest.decode(changed(version=2), PLACE, VERSION)


def test_manifest_is_refused_when_any_byte_is_flipped_or_cut() -> None:
    data = manifest().encode()
    for at in range(len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            try:
                found = Manifest.decode(broken, PLACE, VERSION)
            except (DamagedObject, UnsupportedFormat):
                continue
            assert found == manifest()  # a bit of the frame's header that says nothing


@given(st.binary(max_size=300))
def test_manifest_of_random_bytes_is_refused(data: bytes) -> None:
    for form in (data, zstandard.ZstdCompressor().compress(data)):
        with pytest.raises(DamagedObject):
            Manifest.decode(form, PLACE, VERSION)


def test_manifest_that_decodes_to_very_much_is_refused_unread() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(65 << 20))
    with pytest.raises(DamagedObject, match="invalid size"):
        Manifest.decode(bomb, PLACE, VERSION)


def test_segments_that_overlap_are_refused() -> None:
    broken = replace(manifest(), segments=(segment(20, 36), segment(35, 45)))
    with pytest.raises(DamagedObject, match="overlap"):
        Manifest.decode(broken.encode(), PLACE, VERSION)


def test_starting_at_leaves_out_what_ends_there() -> None:
    later = manifest().starting_at(30)
    assert (later.start, later.end, later.segments, later.chapters) == (30, 45, manifest().segments[1:], ())
    assert manifest().starting_at(1) == manifest()
    assert Manifest.decode(later.encode(), PLACE, VERSION) == later
    gone = manifest().starting_at(45)
    assert (gone.start, gone.end, gone.segments) == (45, 45, ())


def test_chapter_is_read_back_and_refused_when_it_is_another() -> None:
    segments = [segment(0, 10), segment(10, 20)]
    data = encode_chapter(segments)
    chapter = chapter_of(segments, data)
    assert decode_chapter(data, chapter, PLACE.log_id) == tuple(segments)
    for other in (replace(chapter, segment_count=3), replace(chapter, end=21)):
        with pytest.raises(DamagedObject):
            decode_chapter(data, other, PLACE.log_id)
    with pytest.raises(DamagedObject):
        decode_chapter(manifest().encode(), chapter, PLACE.log_id)


def test_objects_lists_everything_that_is_named() -> None:
    names = [one.name for one in manifest().objects()]
    assert len(names) == len(set(names)) == 2 * 2 + 2 + 1 + 1
