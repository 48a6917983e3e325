"""Every damaged byte of a bucket is found, and named."""

from pathlib import Path

import pytest

import timestone
from tests.support.buckets import FaultyBucket, upload_store
from tests.tiering.conftest import append, damage, only_history
from timestone import LogConfig
from timestone.store import Store
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import BucketUnavailable
from timestone_tiering.operations.verification import verify_log


def test_what_was_uploaded_is_clean(uploaded: FolderBucket) -> None:
    seen: list[tuple[str, int, int]] = []
    history = only_history(uploaded)
    found = verify_log(history, lambda *progress: seen.append(progress))
    assert found.damage == ()
    assert found.object_count == sum(1 for _ in history.manifest.objects())
    assert found.bytes == sum(one.size_bytes for one in history.manifest.objects())
    assert seen[-1] == ("telemetry-0", found.bytes, found.bytes)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_flipped_bit_is_found_wherever_it_is(uploaded: FolderBucket) -> None:
    history = only_history(uploaded)
    for stored in history.manifest.objects():
        for position in {0, stored.size_bytes // 2, stored.size_bytes - 1}:
            path = damage(uploaded, stored, history, position)
            (found,) = verify_log(history).damage
            assert found.object == history.objects.name_of(stored)
            assert "not those that were uploaded" in found.reason
            damage(uploaded, stored, history, position)
            assert path.exists()
    assert verify_log(history).damage == ()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_damage_of_a_record_names_its_offset(tmp_path: Path, bucket: FolderBucket, compression: str) -> None:
    config = LogConfig(segment_entries=10, compression=compression)  # type: ignore[arg-type]
    with timestone.open(tmp_path / "data", log=config) as store:
        log = store.log("telemetry")
        append(log, 21)
        if compression == "zstd":
            log.apply_compression()
        upload_store(store, bucket)
    history = only_history(bucket)
    stored = history.manifest.segments[1]
    damage(bucket, stored.segment, history, stored.segment.size_bytes // 2)
    found = verify_log(history).damage
    assert found
    for one in found:
        assert one.object == history.objects.name_of(stored.segment)
        assert one.first_offset is not None and one.end_offset is not None
        assert 10 <= one.first_offset < one.end_offset <= 20
    if compression == "none":
        assert [
            one.end_offset - one.first_offset for one in found if one.end_offset and one.first_offset
        ] == [1]


def test_a_missing_or_short_object_is_damage(uploaded: FolderBucket) -> None:
    history = only_history(uploaded)
    first, second, _ = history.manifest.segments
    uploaded.delete([history.objects.name_of(first.index)])
    path = Path(uploaded.url.removeprefix("file://"), history.objects.name_of(second.segment))
    path.write_bytes(path.read_bytes()[:-1])
    missing, short = verify_log(history).damage
    assert (missing.object, missing.reason) == (history.objects.name_of(first.index), "it is missing")
    assert (missing.first_offset, missing.end_offset) == (0, 10)
    assert short.reason.startswith(f"expected {second.segment.size_bytes} bytes, got")
    assert (short.first_offset, short.end_offset) == (19, 20)


def test_a_bucket_that_does_not_answer_is_not_damage(uploaded: FolderBucket) -> None:
    faulty = FaultyBucket(uploaded)
    history = only_history(faulty)
    faulty.fail_at, faulty.stays_away = len(faulty.calls) + 3, True
    with pytest.raises(BucketUnavailable):
        verify_log(history)


def test_segments_in_chapters_are_verified(
    store: Store, uploaded: FolderBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone_tiering.objects.manifests.SEGMENTS_MOST", 2)
    monkeypatch.setattr("timestone_tiering.objects.manifests.CHAPTER_SEGMENTS", 2)
    append(store.log("telemetry"), 20)
    upload_store(store, uploaded)
    history = only_history(uploaded)
    (chapter, *_) = history.manifest.chapters
    found = verify_log(history)
    assert found.damage == ()
    assert found.object_count == 5 * 2 + len(history.manifest.topics) + len(history.manifest.chapters)
    damage(uploaded, chapter.object, history, 20)
    (one, *_) = verify_log(only_history(uploaded)).damage
    assert (one.object, one.first_offset, one.end_offset) == (
        history.objects.name_of(chapter.object),
        chapter.base,
        chapter.end,
    )
