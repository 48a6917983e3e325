"""Opening of one log from the files of its folder."""

import secrets
from pathlib import Path

import pytest

from timestone.compressed.frame_cache import DecodedFrames
from timestone.config import LogConfig, Recovery
from timestone.disk.catalog import CatalogRow
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.format import names
from timestone.reading.segment_cache import SegmentCache
from timestone.recovery.log_opener import LogOpener, OpenedLog
from timestone.store import open_store


def opened(path: Path, mode: Recovery = Recovery.REPAIR, next_offset: int = 0) -> OpenedLog:
    cache = SegmentCache(8, DecodedFrames(1 << 20))
    opener = LogOpener(Files(), path, mode, cache, secrets.token_bytes(16), lambda: 1)
    row = CatalogRow(LogConfig(), next_offset, 0)
    found = opener.open("log", 0, row, remember=lambda *_: True, progress=lambda *_: None)
    found.topics.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "data") as store:
        store.log("log").append(b"one", topic="a")
        store.log("log").append(b"two", topic="b")
    return tmp_path / "data"


def test_opener_returns_segments_topics_and_next_offset(path: Path) -> None:
    found = opened(path)
    assert found.place.folder == path / "log-0"
    assert (found.recovered.next_offset, len(found.topics), found.segment_list.start(2)) == (2, 2, 0)
    assert [scan.count for scan in found.recovered.scans] == [2]


def test_missing_topic_dictionary_is_created_again_with_the_identity_of_the_log(path: Path) -> None:
    identity = opened(path).topics.identity
    (path / "log-0" / names.TOPICS_NAME).unlink()
    found = opened(path)
    assert found.topics.identity.log_id == identity.log_id
    assert "topic names are lost" in str(found.recovered)


def test_missing_topic_dictionary_is_refused_when_recovery_is_strict(path: Path) -> None:
    (path / "log-0" / names.TOPICS_NAME).unlink()
    with pytest.raises(CorruptLog, match="topic dictionary is missing"):
        opened(path, Recovery.STRICT)
    assert not (path / "log-0" / names.TOPICS_NAME).exists()


def test_log_without_files_begins_at_the_offset_of_the_catalogue(path: Path) -> None:
    for file in (path / "log-0").iterdir():
        file.unlink()
    assert opened(path, next_offset=7).recovered.next_offset == 7
