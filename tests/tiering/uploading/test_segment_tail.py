"""The end of a segment, uploaded as a segment of its own: it has the same records, also of compressed files."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

import timestone
from tests.support.waiting import wait_for, wait_for_seals
from timestone import Compression, CorruptRecord, LogConfig, Record
from timestone.format import names
from timestone.log import Log
from timestone.segment import Segment
from timestone.store import Store
from timestone.upkeep.segment_check import SegmentCheck
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.objects.layout import LogPlace
from timestone_tiering.objects.manifests import LogObjects
from timestone_tiering.uploading.segment_tail import SegmentTail
from timestone_tiering.uploading.upload import SegmentChanged, upload_segment

COUNT, SIZE = 900, 20_000
"""Several pieces of a segment."""


def open_store(path: Path, compression: Compression) -> Store:
    return timestone.open(path, ack="written", log=LogConfig(segment_entries=COUNT, compression=compression))


def sealed(store: Store) -> tuple[Log, Segment]:
    log = store.log("telemetry")
    for number in range(COUNT + 1):
        log.append(
            number.to_bytes(4, "big") * (SIZE // 4),
            topic=f"devices/{number % 50}",
            headers=[("n", b"%d" % number)] if number % 3 else [],
        )
    wait_for_seals(log)
    if log.config.compression is not Compression.NONE:
        wait_for(lambda: all(one.trailer and one.trailer.frames for one in log.segment_list.sealed()))
    return log, log.segment_list.sealed()[0]


def described(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp_us, record.topic, record.headers, bytes(record.payload)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_the_tail_has_the_records_of_the_segment(tmp_path: Path, compression: Compression) -> None:
    bucket = FolderBucket(tmp_path / "bucket")
    objects = LogObjects(bucket, LogPlace(1, "telemetry", 0))
    with open_store(tmp_path / "data", compression) as store:
        log, segment = sealed(store)
        before = store.files.names(log.folder)
        with closing(SegmentTail(store.files, log.folder, segment, 311)) as tail:
            assert store.files.names(log.folder) == before, "nothing of it has a name"
            stored = upload_segment(objects, 1, tail, lambda size: None)
        wanted = [described(one) for one in log.read(311, max_records=COUNT - 311, max_bytes=1 << 30)]
        assert (stored.base, stored.end, stored.epoch) == (311, COUNT, segment.epoch)
        assert stored.trailer.first_timestamp_us == wanted[0][1]
        folder = tmp_path / "copy" / log.folder.name
        folder.mkdir(parents=True)
        names.index_path(folder, 311).write_bytes(b"".join(objects.pieces(stored.index)))
        names.segment_path(folder, 311).write_bytes(b"".join(objects.pieces(stored.segment)))
        shutil.copy(log.folder / names.TOPICS_NAME, folder)
    with timestone.view(tmp_path / "copy") as view:
        copy = view.log("telemetry")
        assert (copy.start_offset, copy.end_offset) == (311, COUNT)
        assert [described(one) for one in copy] == wanted
    with timestone.open(tmp_path / "copy") as store:
        check = SegmentCheck(store.files, store.log("telemetry").segment_list.sealed()[0])
        assert sum(check.slices(1 << 20)) > SIZE * (COUNT - 311)
        assert check.damaged == []


def test_a_damaged_record_is_not_uploaded(tmp_path: Path) -> None:
    with open_store(tmp_path / "data", Compression.NONE) as store:
        log, segment = sealed(store)
        with segment.segment_path.open("r+b") as file:
            file.seek(SIZE * 400 + 10)
            file.write(b"damage")
        with (
            closing(SegmentTail(store.files, log.folder, segment, 311)) as tail,
            pytest.raises(CorruptRecord),
        ):
            list(tail.segment())


def test_a_segment_that_was_deleted_is_chosen_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "data", Compression.NONE) as store:
        log, segment = sealed(store)
        with closing(SegmentTail(store.files, log.folder, segment, 311)) as tail:
            segment.release()
            segment.index_path.unlink()
            with pytest.raises(SegmentChanged, match="replaced or deleted"):
                list(tail.segment())
        with pytest.raises(SegmentChanged, match="replaced or deleted"):
            SegmentTail(store.files, log.folder, segment, 311)
