"""Stores of released versions, read by this one."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

import timestone
from timestone import CorruptLog, LogView, Pin, UnsupportedFormat
from timestone.disk.catalog import FORMAT_VERSION, Catalog
from timestone.kernel.crc import crc32c
from timestone.log import Log
from timestone.reading.named_readers import Commitment
from timestone.repair.inspection import EXIT_UNCLOSED, inspect_store
from timestone.replication.replicated_log import GenerationRun, ReplicatedLog
from timestone.store import Store

HERE = Path(__file__).parent
STATES = {
    "v1": ["sealed", "sealed", "unclosed"],
    "v2": ["sealed", "sealed", "sealed", "unclosed"],
    "v3": ["sealed", "sealed", "sealed", "unclosed"],
    "v4": ["sealed", "unclosed"],
}
"""Each golden store with the states of its segments. v2 has compressed ones, v3 compacted ones; v4 has checksums in its
catalogue."""


@pytest.fixture(params=STATES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden store, because opening one recovers it."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / "store"))


def expected(store: Path) -> list[dict[str, object]]:
    loaded: list[dict[str, object]] = json.loads((store / "expected.json").read_text())
    return loaded


def found(log: Log | LogView) -> list[dict[str, object]]:
    return [
        {
            "offset": record.offset,
            "timestamp_us": record.timestamp_us,
            "topic": record.topic,
            "payload": record.payload.hex(),
            "block": [[item.kind, item.name, item.value.hex()] for item in record.block],
            "flags": record.flags,
        }
        for record in log.reader()
    ]


def test_golden_store_is_read_without_opening_it(golden: Path) -> None:
    with timestone.view(golden) as view:
        assert found(view.log("telemetry")) == expected(golden)


def test_golden_store_is_recovered_and_appended_to(golden: Path) -> None:
    with timestone.open(golden) as store:
        log = store.log("telemetry", create=False)
        assert found(log) == expected(golden)
        assert log.append(b"later") >= len(expected(golden))
        assert log.config.segment_entries == 4


def test_golden_store_is_read_by_topic(golden: Path) -> None:
    with timestone.view(golden) as view:
        reader = view.log("telemetry").reader(topics="devices/+/state")
        wanted = [row["offset"] for row in expected(golden) if str(row["topic"]).startswith("devices/")]
        assert [record.offset for record in reader] == wanted


def test_deep_inspection_of_a_golden_store_finds_no_damage(
    golden: Path, request: pytest.FixtureRequest
) -> None:
    report = inspect_store(golden, deep=True)
    assert report.exit_code == EXIT_UNCLOSED
    states = [segment.state for segment in report.logs[0].segments]
    assert states == STATES[request.node.callspec.params["golden"]]


def test_golden_replica_shows_what_is_committed_and_continues(tmp_path: Path) -> None:
    root = Path(shutil.copytree(HERE / "v5", tmp_path / "store"))
    with timestone.view(root) as view:
        assert found(view.log("telemetry")) == expected(root)
    with pytest.raises(CorruptLog, match="is a replica of a cluster"):
        timestone.open(root)
    with Store(root, timestone.StoreConfig(), log_type=ReplicatedLog) as store:
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog)
        assert found(log) == expected(root)
        assert (log.end_offset, log.written_offset, log.is_whole) == (5, 6, True)
        assert log.generations() == (GenerationRun(3, 0, 0), GenerationRun(4, 4, 2))
        log.show(6)
        assert bytes(log.record(5).payload) == b'{"celsius": 5.5}'


def test_golden_segments_are_compressed_without_and_with_a_dictionary() -> None:
    with timestone.view(HERE / "v2") as view:
        trailers = [segment.trailer for segment in view.log("telemetry").segment_list.segments]
    layouts = [trailer.frames if trailer else None for trailer in trailers]
    assert [layout.dictionary if layout else None for layout in layouts] == [0, 1, None, None]
    assert [trailer.generation if trailer else None for trailer in trailers] == [1, 1, 0, None]


def test_golden_compacted_segments_skip_removed_records() -> None:
    with timestone.view(HERE / "v3") as view:
        trailers = [segment.trailer for segment in view.log("telemetry").segment_list.segments]
    assert [trailer.removed_count if trailer else None for trailer in trailers] == [4, 2, 1, None]
    assert [trailer.generation if trailer else None for trailer in trailers] == [1, 2, 2, None]


def test_golden_catalogue_verifies_and_has_its_commits(tmp_path: Path) -> None:
    root = Path(shutil.copytree(HERE / "v4", tmp_path / "store"))
    for opened in (timestone.view(root), timestone.open(root)):
        with opened as store:
            committed = {reader.name: (found.offset, found.pin) for reader, found in store.readers().items()}
            assert committed == {
                "billing": (3, None),
                "gerät/ß": (5, Pin(max_age_ms=1000, max_bytes=2000)),
            }
    catalogue = Catalog(root / "catalog.db", read_only=True)
    catalogue.check()
    assert catalogue.items("space") == {"key": b"\0\xff", "\0": b""}
    catalogue.close()


def test_golden_commits_are_read_and_written_byte_for_byte() -> None:
    pin = Pin(max_age_ms=1000, max_bytes=2000)
    commits = [Commitment(3, 1000), Commitment(5, 2000, pin), Commitment(5, 2000, pin, "host-7 ü")]
    lines = (HERE / "commits.jsonl").read_bytes().splitlines()
    assert [Commitment.decode(line, HERE, "x") for line in lines] == commits
    assert [commit.encode() for commit in commits] == lines


def test_catalogue_of_an_earlier_version_is_upgraded_at_open(golden: Path) -> None:
    before = Catalog(golden / "catalog.db", read_only=True)
    documents = {space: before.items(space) for space in before.spaces()}
    before.close()
    timestone.open(golden).close()
    with sqlite3.connect(golden / "catalog.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    connection.close()
    after = Catalog(golden / "catalog.db", read_only=True)
    after.check()
    assert {space: after.items(space) for space in documents} == documents
    after.close()


@pytest.mark.parametrize("name", ["topics", "00000000000000000000.index"])
def test_file_of_a_later_version_raises_unsupported_format(golden: Path, name: str) -> None:
    path = golden / "telemetry-0" / name
    data = bytearray(path.read_bytes())
    data[8] = 9
    end = 64 if name.endswith("index") else 508
    data[end : end + 4] = crc32c(bytes(data[:end])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnsupportedFormat, match="format version 9"):
        timestone.open(golden)
    assert path.read_bytes() == bytes(data)
