"""The topic dictionary: ids are never reused, a damaged name costs one name, a torn tail costs nothing."""

import enum
import struct
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Files
from timestone.errors import CorruptLog, InvalidName, TopicLimit, UnsupportedFormat
from timestone.format.identity import HEADER_BYTES, LogIdentity
from timestone.format.topics import TopicDictionary, create_topics_file
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import NO_TOPIC

IDENTITY = LogIdentity(0x1122334455667788, "telemetry", 3, 1_700_000_000_000_000)
NAMES = ["devices/1/temperature", "é", "x" * 65_535, "a", "devices/2/temperature"]


@pytest.fixture
def path(quick_directory: Path) -> Path:
    path = quick_directory / "topics"
    create_topics_file(Files(), path, IDENTITY)
    return path


def fill(path: Path, names: list[str]) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    for name in names:
        topics.add(name)
    topics.write_added()
    topics.sync()
    topics.close()


def names_of(path: Path) -> list[str | None]:
    topics = TopicDictionary(Files(), path)
    try:
        return topics.names()
    finally:
        topics.close()


def test_file_has_the_bytes_that_the_format_page_shows(path: Path) -> None:
    fill(path, ["é"])
    raw = path.read_bytes()
    fixed = b"TSTTOPIC" + struct.pack("<IIQqH", 1, 3, IDENTITY.log_id, IDENTITY.created_us, 9) + b"telemetry"
    fixed = fixed.ljust(508, b"\0")
    assert raw[:HEADER_BYTES] == fixed + struct.pack("<I", crc32c(fixed))
    salted = struct.pack("<QIH", IDENTITY.log_id, 0, 2) + "é".encode()
    assert raw[HEADER_BYTES:] == struct.pack("<IH", crc32c(salted), 2) + "é".encode()


def test_names_keep_their_ids_when_the_file_is_read_again(path: Path) -> None:
    fill(path, NAMES)
    topics = TopicDictionary(Files(), path)
    assert topics.identity == IDENTITY
    assert topics.names() == NAMES
    assert [topics.find(name) for name in NAMES] == [0, 1, 2, 3, 4]
    assert [topics.name(number) for number in range(5)] == NAMES
    assert [topics.name(number) for number in (-1, 5, NO_TOPIC)] == [None] * 3
    assert topics.find("unknown") is None
    topics.close()


def test_known_name_keeps_its_id(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    assert [topics.add(name) for name in ("a", "b", "a", "b", "c")] == [0, 1, 0, 1, 2]
    assert len(topics) == 3
    topics.close()


@pytest.mark.parametrize("name", ["", "a/+", "#", "x" * 65_536, "a\0b"])
def test_invalid_topic_name_gets_no_id(path: Path, name: str) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    with pytest.raises(InvalidName):
        topics.add(name)
    assert len(topics) == 0
    topics.close()


def test_limit_refuses_new_names_and_accepts_known_ones(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True, limit=2)
    topics.add("a")
    topics.add("b")
    with pytest.raises(TopicLimit) as caught:
        topics.add("c")
    assert (caught.value.log, caught.value.limit) == ("telemetry", 2)
    assert topics.add("a") == 0
    topics.close()


def test_limit_of_bytes_refuses_new_names(path: Path) -> None:
    """A million topics of 64 KiB each would be within the limit of a million."""
    topics = TopicDictionary(Files(), path, writable=True, limit_bytes=10)
    assert [topics.add("four"), topics.add("föur")] == [0, 1]
    with pytest.raises(TopicLimit, match=r"10 bytes of topic names \(topic_bytes\)"):
        topics.add("xx")
    assert [topics.add("x"), topics.add("four")] == [2, 0]
    topics.write_added()
    topics.close()
    again = TopicDictionary(Files(), path, writable=True, limit_bytes=5)
    assert len(again) == 3, "existing names are read even above the limit"
    with pytest.raises(TopicLimit):
        again.add("y")
    assert again.add("x") == 2
    assert again.add_all(["x", "four"]).tolist() == [2, 0]
    again.close()


def test_many_names_get_their_ids_in_order(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True, limit=3)
    assert topics.add_all(["b", "a", "b"]).tolist() == [0, 1, 0]
    assert topics.add_all(["a", "b"]).tolist() == [1, 0]
    assert topics.add_all(["c", "a"]).tolist() == [2, 1]
    with pytest.raises(TopicLimit):
        topics.add_all(["a", "d"])
    topics.close()


@pytest.mark.parametrize("bad", ["#", "", "+", "a/+", "a\0", "\udc80", "x" * 65_536])
def test_add_all_adds_no_name_when_one_is_refused(path: Path, bad: str) -> None:
    topics = TopicDictionary(Files(), path, writable=True, limit=3, limit_bytes=100)
    for names in (["a", bad], [bad, "a"]):
        with pytest.raises(InvalidName):
            topics.add_all(names)
    with pytest.raises(TopicLimit):
        topics.add_all(["a", "b", "c", "d"])
    with pytest.raises(TopicLimit, match="100 bytes"):
        topics.add_all(["a", "x" * 100])
    assert len(topics) == 0
    assert topics.add_all(["a\x01", "grüße", "x" * 90]).tolist() == [0, 1, 2]
    topics.close()


class Topic(enum.StrEnum):
    HALL = "a/hall"


def test_enumeration_member_is_added_by_its_value(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    assert topics.add("a/hall") == topics.add(Topic.HALL) == topics.find(Topic.HALL) == 0
    assert topics.add_all([Topic.HALL, "b", Topic.HALL]).tolist() == [0, 1, 0]
    assert topics.add_all([Topic.HALL]).tolist() == [0]
    assert topics.names() == ["a/hall", "b"]
    assert {type(name) for name in topics.names()} == {str}
    topics.close()


def test_reader_of_another_process_sees_names_after_refresh(path: Path) -> None:
    owner, reader = TopicDictionary(Files(), path, writable=True), TopicDictionary(Files(), path)
    owner.add("a")
    owner.write_added()
    reader.refresh()
    assert reader.names() == ["a"]
    owner.add("b")
    owner.write_added()
    reader.refresh()
    assert reader.names() == ["a", "b"]
    owner.close()
    reader.close()


def test_names_get_one_id_each_when_many_threads_add_them(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    found: list[list[int]] = []
    start = threading.Barrier(4)

    def add_all() -> None:
        start.wait()
        found.append([topics.add(f"t{number}") for number in range(500)])

    threads = [threading.Thread(target=add_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == found[0] for ids in found)
    assert sorted(found[0]) == list(range(500))
    topics.write_added()
    topics.close()
    assert names_of(path) == topics.names()


@pytest.mark.parametrize("written_bytes", [0, 1, 5, 6, 7, 20])
def test_failed_write_is_completed_by_the_next(path: Path, written_bytes: int) -> None:
    files = FaultyFiles()
    topics = TopicDictionary(files, path, writable=True)
    topics.add("first")
    topics.write_added()
    topics.add("second/one")
    topics.add("third/one")
    files.fail("pwrite", 28, written_bytes=written_bytes)
    with pytest.raises(OSError, match="No space left"):
        topics.write_added()
    topics.add("fourth")
    topics.write_added()
    topics.close()
    assert names_of(path) == ["first", "second/one", "third/one", "fourth"]


def test_file_cut_at_any_byte_keeps_the_names_before_the_cut(path: Path) -> None:
    names = ["alpha", "b", "gamma/delta", "é/ü"]
    fill(path, names)
    raw = path.read_bytes()
    ends = [HEADER_BYTES]
    for name in names:
        ends.append(ends[-1] + 6 + len(name.encode()))
    for size in range(HEADER_BYTES, len(raw) + 1):
        path.write_bytes(raw[:size])
        topics = TopicDictionary(Files(), path, writable=True)
        whole = sum(end <= size for end in ends) - 1
        assert topics.names() == names[:whole], size
        assert topics.torn_bytes == size - ends[whole]
        assert topics.end_position == ends[whole]
        topics.cut()
        topics.add("after")
        topics.write_added()
        topics.close()
        assert names_of(path) == [*names[:whole], "after"]


@pytest.mark.parametrize("size", [0, 1, 100, HEADER_BYTES - 1])
def test_file_without_a_whole_header_is_corrupt_unless_the_log_is_known(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptLog) as caught:
        TopicDictionary(Files(), path)
    assert caught.value.path == path
    topics = TopicDictionary(Files(), path, known=IDENTITY)
    assert topics.damaged_header
    topics.close()


def test_any_flipped_bit_costs_at_most_the_name_it_is_in(path: Path) -> None:
    names: list[str | None] = ["alpha", "b", "gamma/delta", "é/ü", "last"]
    fill(path, [name for name in names if name])
    raw = path.read_bytes()
    for bit in range(HEADER_BYTES * 8, len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        found = names_of(path)
        wrong = [number for number, name in enumerate(names) if number >= len(found) or found[number] != name]
        assert len(wrong) == 1, bit
        assert wrong[0] >= len(found) or found[wrong[0]] is None, "a damaged name is None, never another name"


def test_header_with_any_flipped_bit_is_rewritten_from_the_indexes(path: Path) -> None:
    fill(path, ["a", "b"])
    raw = path.read_bytes()
    for bit in range(HEADER_BYTES * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptLog):
            TopicDictionary(Files(), path)
        topics = TopicDictionary(Files(), path, writable=True, known=IDENTITY)
        topics.rewrite_header()
        assert topics.names() == ["a", "b"]
        topics.close()
        assert path.read_bytes() == raw


@pytest.mark.parametrize(
    ("found", "is_foreign"),
    [
        (replace(IDENTITY, log_id=5), False),  # an earlier log of this name: the owner decides by the id
        (replace(IDENTITY, name="other"), False),  # a folder that was renamed
        (replace(IDENTITY, log_id=5, name="other"), True),
        (replace(IDENTITY, log_id=5, partition=4), True),
    ],
)
def test_header_of_a_log_with_another_name_and_id_is_not_believed(
    tmp_path: Path, found: LogIdentity, is_foreign: bool
) -> None:
    create_topics_file(Files(), tmp_path / "topics", found)
    topics = TopicDictionary(Files(), tmp_path / "topics", known=IDENTITY)
    topics.close()
    assert (topics.identity, topics.damaged_header) == ((IDENTITY, True) if is_foreign else (found, False))


def test_newer_version_raises_unsupported_format_even_when_the_log_is_known(path: Path) -> None:
    page = bytearray(path.read_bytes()[:HEADER_BYTES])
    struct.pack_into("<I", page, 8, 2)
    struct.pack_into("<I", page, 508, crc32c(bytes(page[:508])))
    path.write_bytes(page)
    with pytest.raises(UnsupportedFormat) as caught:
        TopicDictionary(Files(), path, known=IDENTITY)
    assert (caught.value.found, caught.value.supported) == (2, 1)


def test_dictionary_of_another_log_is_rejected(path: Path, quick_directory: Path) -> None:
    """Entries are salted with the log's id: a file copied over another one gives no names to the wrong records."""
    fill(path, ["a", "b"])
    other = quick_directory / "other"
    create_topics_file(Files(), other, LogIdentity(1, "other", 0, 1))
    other.write_bytes(other.read_bytes() + path.read_bytes()[HEADER_BYTES:])
    assert names_of(other) == []


def test_page_of_zeros_costs_only_the_names_in_it_and_little_time(path: Path) -> None:
    """A lost page takes some 300 names with it: the ones behind it must be found again, and soon."""
    names = [f"d/{number:06d}" for number in range(3000)]
    fill(path, names)
    raw = bytearray(path.read_bytes())
    raw[8192:12288] = bytes(4096)
    path.write_bytes(raw)
    found = names_of(path)
    lost = {number for number, name in enumerate(names) if number >= len(found) or found[number] != name}
    first, last = (8192 - HEADER_BYTES) // 14, (12288 - HEADER_BYTES) // 14
    assert lost <= set(range(first, last + 1))
    assert all(found[number] is None for number in lost)


def test_many_damaged_names_cost_only_those_names(path: Path) -> None:
    """Each was read past in a call within the one before, until Python allowed no more and no log could be opened."""
    names = [f"devices/{number}" for number in range(4000)]
    fill(path, names)
    raw, at = bytearray(path.read_bytes()), HEADER_BYTES
    for number, name in enumerate(names):
        raw[at] ^= number % 2
        at += 6 + len(name)
    path.write_bytes(raw)
    found = names_of(path)
    assert found == [None if number % 2 else name for number, name in enumerate(names)][: len(found)]
    assert len(found) == 3999, "nothing behind the last one proves that it was there"


def test_damaged_name_is_skipped_without_reading_the_file_again(path: Path) -> None:
    class CountingFiles(Files):
        read_bytes = 0

        def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
            data = super().pread(fd, length_bytes, position)
            self.read_bytes += len(data)
            return data

    fill(path, [f"devices/{number}/temperature" for number in range(100_000)])
    raw = bytearray(path.read_bytes())
    raw[HEADER_BYTES] ^= 1
    path.write_bytes(raw)
    files = CountingFiles()
    topics = TopicDictionary(files, path)
    assert (len(topics), topics.lost_count, topics.torn_bytes) == (100_000, 1, 0)
    assert files.read_bytes == len(raw)
    topics.close()


@pytest.mark.slow
def test_random_bytes_behind_the_last_name_are_a_torn_tail_found_quickly(path: Path) -> None:
    """A megabyte of noise, as a file system may leave behind a size that was written before its data."""
    fill(path, ["a", "b"])
    noise = bytes(range(1, 256)) * 4112
    path.write_bytes(path.read_bytes() + noise)
    topics = TopicDictionary(Files(), path)
    assert topics.names() == ["a", "b"]
    assert topics.torn_bytes == len(noise)
    topics.close()


def test_ids_of_lost_names_are_not_reused(path: Path) -> None:
    topics = TopicDictionary(Files(), path, writable=True)
    topics.add("a")
    topics.write_added()
    topics.take_up_to(5)
    assert topics.lost_count == 4
    assert topics.add("new") == 5
    topics.write_added()
    topics.close()
    assert names_of(path) == ["a", None, None, None, None, "new"]


def test_taking_known_ids_changes_nothing(path: Path) -> None:
    fill(path, ["a", "b"])
    topics = TopicDictionary(Files(), path, writable=True)
    topics.take_up_to(2)
    assert topics.names() == ["a", "b"]
    topics.close()


def test_sync_flushes_only_what_is_not_yet_flushed(path: Path) -> None:
    files = FaultyFiles()
    topics = TopicDictionary(files, path, writable=True)
    topics.sync()
    assert files.counts["fdatasync"] == 1, "what a killed owner wrote may be in memory only"
    topics.sync()
    assert files.counts["fdatasync"] == 1
    topics.add("a")
    topics.write_added()
    topics.sync()
    topics.sync()
    assert files.counts["fdatasync"] == 2
    topics.close()


@pytest.mark.slow
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="+#\0"), min_size=1), unique=True))
def test_any_valid_names_are_read_back(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "topics")
        create_topics_file(Files(), path, IDENTITY)
        fill(path, names)
        assert names_of(path) == names


def test_reader_of_another_process_continues_with_the_copy_of_a_recovery(path: Path) -> None:
    owner = TopicDictionary(Files(), path, writable=True)
    owner.add("a")
    owner.write_added()
    reader = TopicDictionary(Files(), path)
    owner.copy_anew()
    owner.add("b")
    owner.write_added()
    reader.follow()
    reader.refresh()
    assert reader.names() == ["a", "b"]
    owner.close()
    reader.close()
