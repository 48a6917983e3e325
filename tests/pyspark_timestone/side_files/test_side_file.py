"""A segment as a Parquet file: the same records, tied to its segment, on the disk whole or not at all."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timestone
from pyspark_timestone.side_files.side_file import (
    METADATA_KEY,
    SegmentIdentity,
    sealed_segments,
    what_is_wrong,
    write_side_file,
)
from tests.support.recording_files import RecordingFiles, Renamed, SyncEnded
from tests.support.stores import LOG, fill, value_of
from tests.support.waiting import wait_for_seals
from timestone import LogConfig, LogView
from timestone.disk.files import Files
from timestone.errors import CorruptRecord
from timestone.record import FLAG_TOMBSTONE


def written(log: LogView, number: int, folder: Path) -> Path:
    segment = sealed_segments(log)[number]
    path = folder / segment.file_name
    assert write_side_file(log, segment, path, Files())
    return path


def test_rows_are_the_records_with_the_columns_of_the_source(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(LOG, 3)
        log.append_many([b"", b"x" * 70_000, b"plain"], topics=["a/b", "c", "c"])
        log.append(b"no topic")
        log.append(b"headed", topic="a/b", headers=[("k", b"\x00\xff"), ("k", b"")])
        log.append(b"", topic="c", flags=FLAG_TOMBSTONE)
        log.roll()
    with timestone.view(tmp_path / "data") as view:
        log_view = view.log(LOG, 3)
        rows = pq.read_table(written(log_view, 0, tmp_path)).to_pylist()
        expected = log_view.read(0).to_arrow().to_pylist()
    assert rows == expected
    assert [row["value"] for row in rows[::5]] == [b"", None]
    assert rows[4]["headers"] == [{"key": "k", "value": b"\x00\xff"}, {"key": "k", "value": b""}]


@pytest.mark.slow
def test_row_groups_have_the_bounds_of_offset_and_time(tmp_path: Path) -> None:
    fill(tmp_path / "data", 300_000, segment_entries=1_000_000)
    with timestone.view(tmp_path / "data") as view:
        footer = pq.read_metadata(written(view.log(LOG), 0, tmp_path))
    columns = [pq_column(footer, group, "offset") for group in range(footer.num_row_groups)]
    assert [(one.min, one.max) for one in columns] == [(0, 131_071), (131_072, 262_143), (262_144, 299_999)]
    times = [pq_column(footer, group, "timestamp") for group in range(footer.num_row_groups)]
    assert all(one.has_min_max for one in times)


def pq_column(footer: pq.FileMetaData, group: int, name: str) -> pq.Statistics:
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    return footer.row_group(group).column(names.index(name)).statistics


def test_only_sealed_segments_with_records_have_one(tmp_path: Path) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log(LOG, config=LogConfig(segment_entries=10))
        for number in range(25):
            log.append(b"%d" % number)
        wait_for_seals(log)
        with timestone.view(tmp_path) as view:
            found = sealed_segments(view.log(LOG))
    assert [(one.base_offset, one.end_offset, one.row_count) for one in found] == [(0, 10, 10), (10, 20, 10)]


def test_segments_that_retention_deletes_while_they_are_listed_are_left_out(tmp_path: Path) -> None:
    with timestone.open(tmp_path, delete_delay_ms=0) as store:
        log = store.log(LOG, config=LogConfig(segment_entries=10))
        for number in range(95):
            log.append(b"%d" % number)
        wait_for_seals(log)
        with timestone.view(tmp_path) as view:
            listed = view.log(LOG)
            log.configure(retention_bytes=20_000)
            log.apply_retention()
            assert sealed_segments(listed)[0].base_offset == log.start_offset > 0


def test_it_is_synced_before_it_has_its_name_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    files = RecordingFiles(tmp_path)
    with timestone.view(tmp_path / "data") as view:
        log = view.log(LOG)
        segment = sealed_segments(log)[0]
        path = tmp_path / segment.file_name
        assert write_side_file(log, segment, path, files)
        kinds = [type(one) for one in files.operations]
        assert kinds.index(SyncEnded) < kinds.index(Renamed)
        path.unlink()
        damaged = next((tmp_path / "data").glob("*/*.segment"))
        damaged.write_bytes(damaged.read_bytes().replace(value_of(57), b"RECORD 57"))
    with timestone.view(tmp_path / "data") as view, pytest.raises(CorruptRecord, match="offset 57"):
        write_side_file(view.log(LOG), segment, path, Files())
    assert not list(tmp_path.glob("*.parquet*"))


def test_a_segment_that_changes_meanwhile_gets_none(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    with timestone.view(tmp_path / "data") as view:
        log = view.log(LOG)
        segment = sealed_segments(log)[0]

        class Vanishing(LogView):
            """What retention does, at the last moment."""

            def refresh(self) -> int:
                for path in log.folder.glob("0*"):
                    path.unlink()
                return super().refresh()

        log.__class__ = Vanishing
        assert not write_side_file(log, segment, tmp_path / segment.file_name, Files())
    assert not list(tmp_path.glob("*.parquet*"))


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    fill(tmp_path / "data", 3000)
    with timestone.view(tmp_path / "data") as view:
        log = view.log(LOG)
        first, second, _ = sealed_segments(log)
        path = written(log, 0, tmp_path)
    assert what_is_wrong(path, first) == ""
    assert "it says that it is of" in what_is_wrong(path, second)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert "Parquet" in what_is_wrong(path, first)
    path.write_bytes(b"")
    assert "Parquet" in what_is_wrong(path, first)
    pq.write_table(pq.read_table(_restored(path, whole)).slice(1), path)
    assert what_is_wrong(path, first) == "it has 999 rows of 1000"
    with pytest.raises(FileNotFoundError):
        what_is_wrong(tmp_path / "none", first)


def _restored(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_the_name_of_a_segment_is_its_records_not_their_form(tmp_path: Path) -> None:
    """Compression changes neither name nor content of a side file; another log under the same name changes both."""

    def identities(compression: str) -> list[SegmentIdentity]:
        with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
            store.log(LOG).configure(compression=compression)
            store.log(LOG).compression.apply()
        with timestone.view(tmp_path / "data") as view:
            return sealed_segments(view.log(LOG))

    fill(tmp_path / "data", 2000)
    before = identities("none")
    assert identities("zstd") == before
    assert list((tmp_path / "data").glob("*/*.1.segment"))
    assert '"version": 2' in before[0].to_json()


@pytest.mark.parametrize("flags", [0, FLAG_TOMBSTONE], ids=["no tombstone", "tombstone"])
def test_file_of_version_1_counts_unless_it_has_tombstones(tmp_path: Path, flags: int) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log(LOG)
        log.append(b"", flags=flags)
        log.roll()
    with timestone.view(tmp_path / "data") as view:
        (segment,) = sealed_segments(view.log(LOG))
        path = written(view.log(LOG), 0, tmp_path)
    table = pq.read_table(path)
    table = table.set_column(6, pa.field("value", pa.binary(), nullable=False), pa.array([b""]))
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: segment.to_json(version=1)})
    said = what_is_wrong(path, segment)
    assert said == ("it is of version 1, in which the value of a tombstone is empty" if flags else "")
