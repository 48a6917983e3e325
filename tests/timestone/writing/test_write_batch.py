import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import RecordTooLarge
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC, Entries
from timestone.kernel.entry_checksum import EntrySeal
from timestone.record import FLAG_REMOVED
from timestone.writing.write_batch import WriteBatch

SEAL = EntrySeal(5, 1000)


def entries_of(write_batch: WriteBatch, ordinal: int = 3, position: int = 70) -> Entries:
    raw = write_batch.entries(SEAL, ordinal=ordinal, position=position, timestamp_us=99)
    assert len(raw) == write_batch.count * ENTRY_BYTES
    return np.frombuffer(raw, dtype=ENTRY)


def test_batch_repr_has_its_count_and_size() -> None:
    assert repr(WriteBatch([b"abc", b""])) == "<WriteBatch: 2 records, 3 bytes>"


@pytest.mark.parametrize("size", [3, 1000], ids=["small", "large"])
def test_bytes_like_payloads_are_copied(size: int) -> None:
    """Small ones are joined on the way; a large one is kept as it is handed in, so it has to be a copy."""
    changing = bytearray(b"a" * size)
    write_batch = WriteBatch([changing, b"b", memoryview(changing)[:2]])
    changing[:] = b"z" * size
    assert write_batch.stored.joined() == b"a" * size + b"b" + b"aa"
    assert entries_of(write_batch)["length"].tolist() == [size, 1, 2]


@pytest.mark.parametrize("payload", ["text", 5, None])
def test_payload_that_is_not_bytes_like_is_refused(payload: object) -> None:
    kind = type(payload).__name__
    with pytest.raises(
        TypeError, match=f"invalid payload: expected bytes, bytearray or memoryview, got {kind}"
    ):
        WriteBatch([b"a", payload])  # type: ignore[list-item]


def test_entries_describe_contiguous_records() -> None:
    write_batch = WriteBatch(
        [b"abc", b"", b"de"], [1, NO_TOPIC, 2], flags=[1, 0, 8], header_lengths=[2, 0, 0]
    )
    entries = entries_of(write_batch)
    assert write_batch.stored.joined() == b"abcde"
    assert (write_batch.count, write_batch.size_bytes) == (3, 5)
    assert entries["position"].tolist() == [70, 73, 73]
    assert entries["length"].tolist() == [3, 0, 2]
    assert entries["timestamp_us"].tolist() == [99, 99, 99]
    assert entries["topic"].tolist() == [1, NO_TOPIC, 2]
    assert entries["flags"].tolist() == [1, 0, 8]
    assert entries["header_length"].tolist() == [2, 0, 0]
    assert entries["data_crc"].tolist() == [crc32c(b"abc"), crc32c(b""), crc32c(b"de")]
    assert SEAL.valid(entries, 3).all()


PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@given(PAYLOADS, st.integers(0, 1000), st.integers(0, 2**31))
def test_one_value_for_all_equals_the_same_value_for_each(
    payloads: list[bytes], ordinal: int, position: int
) -> None:
    count = len(payloads)
    once = WriteBatch(payloads, 7, flags=5)
    each = WriteBatch(payloads, [7] * count, flags=[5] * count, header_lengths=[0] * count)
    assert entries_of(once, ordinal, position).tobytes() == entries_of(each, ordinal, position).tobytes()


@given(PAYLOADS)
def test_records_appended_one_by_one_have_the_entries_of_a_batch(payloads: list[bytes]) -> None:
    """A batch of one record takes a faster path; the bytes on the disk must be the same."""
    batch = entries_of(WriteBatch(payloads, 3, flags=1), 10, 500).tobytes()
    position, singles = 500, b""
    for number, payload in enumerate(payloads):
        one = WriteBatch([payload], 3, flags=1)
        singles += one.entries(SEAL, ordinal=10 + number, position=position, timestamp_us=99)
        assert WriteBatch.single(payload, 3, 1).entries(
            SEAL, ordinal=10 + number, position=position, timestamp_us=99
        ) == one.entries(SEAL, ordinal=10 + number, position=position, timestamp_us=99)
        position += len(payload)
    assert singles == batch


def test_single_record_is_refused_when_it_does_not_fit_an_entry() -> None:
    joined = WriteBatch.joined([WriteBatch.single(b"abc", 7, 2), WriteBatch([b"d"], 8)])
    assert (joined.count, joined.stored.joined()) == (2, b"abcd")
    assert entries_of(joined)["topic"].tolist() == [7, 8]
    for topic_id, flags in ((-1, 0), (1 << 32, 0), (0, -1), (0, 1 << 16)):
        with pytest.raises(OverflowError):
            WriteBatch.single(b"", topic_id, flags)
    with pytest.raises(ValueError, match="removed"):
        WriteBatch.single(b"", 0, FLAG_REMOVED)


@given(st.lists(PAYLOADS, min_size=1, max_size=5))
def test_joined_batches_equal_one_batch_of_all_records(parts: list[list[bytes]]) -> None:
    write_batches = [WriteBatch(part, number, flags=number * 2) for number, part in enumerate(parts)]
    joined = WriteBatch.joined(write_batches)
    together = WriteBatch(
        [payload for part in parts for payload in part],
        [number for number, part in enumerate(parts) for _ in part],
        flags=[number * 2 for number, part in enumerate(parts) for _ in part],
    )
    assert joined.stored.joined() == together.stored.joined()
    assert (joined.count, joined.size_bytes) == (together.count, together.size_bytes)
    assert entries_of(joined).tobytes() == entries_of(together).tobytes()


def test_columns_may_be_numpy_arrays() -> None:
    write_batch = WriteBatch(
        [b"a", b"b"], np.array([1, 2], dtype=np.uint32), flags=np.array([3, 4], dtype=np.uint16)
    )
    assert entries_of(write_batch)["topic"].tolist() == [1, 2]
    single = WriteBatch([b"a"], np.array([1], dtype=np.uint32), flags=np.array([3], dtype=np.uint16))
    assert entries_of(single)["flags"].tolist() == [3]


def test_record_over_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(RecordTooLarge) as caught:
        WriteBatch([b"a", b"x" * 11, b"b"]).check(10, 0)
    assert (caught.value.size, caught.value.limit) == (11, 10)


def test_any_number_of_records_at_the_limit_is_accepted() -> None:
    WriteBatch([b"x" * 10] * 5).check(10, 0)
    WriteBatch([]).check(10, 0)


BAD_COLUMNS = {
    "fewer topics than records": {"topic_ids": [1]},
    "more topics than records": {"topic_ids": [1, 2, 3]},
    "fewer flags": {"flags": [1]},
    "fewer header lengths": {"header_lengths": [0]},
    "header longer than its record": {"header_lengths": [0, 2]},
    "header longer than any record": {"header_lengths": 2},
    "header length beyond its field": {"header_lengths": 70_000},
    "flags beyond their field": {"flags": 70_000},
    "topic beyond its field": {"topic_ids": 2**32},
    "negative topic": {"topic_ids": -1},
    "topics that lose something in their field": {"topic_ids": np.array([2**32, 0])},
    "negative flags in an array": {"flags": np.array([-1, 0])},
    "topics that are no whole numbers": {"topic_ids": np.array([0.5, 1])},
    "topic that the log has not given out": {"topic_ids": 99},
    "topics of which the log has not given out one": {"topic_ids": [98, 99]},
}


@pytest.mark.parametrize("columns", BAD_COLUMNS.values(), ids=BAD_COLUMNS.keys())
def test_columns_are_refused_before_queueing_when_they_do_not_fit_an_entry(
    columns: dict[str, object],
) -> None:
    """They would fail on the committer's thread instead, in a batch with the drafts of others."""
    with pytest.raises((ValueError, OverflowError, TypeError)):
        WriteBatch([b"a", b"b"], **columns).check(1000, 99)  # type: ignore[arg-type]


def test_topics_of_the_log_and_none_are_accepted() -> None:
    WriteBatch([b"a"]).check(10, 0)
    WriteBatch([b"a", b"b", b"c"], [0, NO_TOPIC, 4]).check(10, 5)
    WriteBatch([]).check(10, 0)


def test_batch_keeps_no_reference_to_the_given_list() -> None:
    payloads = [b"a", b"b"]
    write_batch = WriteBatch(payloads)
    payloads.clear()
    assert write_batch.stored.joined() == b"ab"


def test_batch_of_columns_equals_the_batch_of_the_same_records() -> None:
    payloads = [b"abc", b"", b"de"]
    lengths = np.array([3, 0, 2], dtype=np.uint32).tobytes()
    made = WriteBatch.from_columns(b"abcde", lengths, [1, 2, 3], flags=4, header_lengths=[1, 0, 0])
    same = WriteBatch(payloads, [1, 2, 3], flags=4, header_lengths=[1, 0, 0])
    assert (made.count, made.size_bytes, made.stored.joined()) == (
        same.count,
        same.size_bytes,
        same.stored.joined(),
    )
    assert entries_of(made).tobytes() == entries_of(same).tobytes()
    assert (
        entries_of(WriteBatch.joined([made, same])).tobytes()
        == entries_of(WriteBatch.joined([same, made])).tobytes()
    )


BAD_LENGTHS = {
    "longer than the data": (b"abc", [4]),
    "shorter than the data": (b"abc", [1, 1]),
    "adding up to the data modulo 2**32": (b"", [2**31, 2**31]),
    "without records": (b"abc", []),
}


@pytest.mark.parametrize(("data", "lengths"), BAD_LENGTHS.values(), ids=BAD_LENGTHS.keys())
def test_lengths_are_refused_when_their_sum_differs_from_the_data(data: bytes, lengths: list[int]) -> None:
    with pytest.raises(ValueError):
        WriteBatch.from_columns(data, np.array(lengths, dtype=np.uint32).tobytes())


def test_truncated_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        WriteBatch.from_columns(b"a", b"\1\0\0\0\0")


def test_batch_of_empty_columns_is_empty() -> None:
    write_batch = WriteBatch.from_columns(b"", b"")
    assert (write_batch.count, write_batch.size_bytes) == (0, 0)
    assert write_batch.entries(SEAL, ordinal=0, position=0, timestamp_us=1) == b""


def test_single_record_is_not_copied() -> None:
    payload = b"x" * 1000
    assert WriteBatch([payload]).stored.joined() is payload


class Text(bytes):
    """Its own type, still bytes; numpy has one of these."""


def test_payloads_may_be_any_iterable_of_bytes() -> None:
    payloads: list[bytes] = [b"a", Text(b"bc")]
    for write_batch in (WriteBatch(iter(payloads)), WriteBatch(payloads)):  # type: ignore[arg-type]
        assert (write_batch.count, write_batch.stored.joined()) == (2, b"abc")


def test_large_payloads_stay_separate_and_small_ones_are_joined() -> None:
    large = [bytes([number]) * 2000 for number in range(3)]
    assert WriteBatch(large).stored.pieces == tuple(large)
    assert WriteBatch([b"ab", b"c"]).stored.pieces == (b"abc",)
    together = WriteBatch.joined([WriteBatch(large), WriteBatch([b"ab", b"c"])])
    assert together.stored.pieces == (b"".join(large) + b"abc",)
    huge = [bytes(100_000), bytes([1]) * 100_000]
    assert WriteBatch.joined([WriteBatch(huge[:1]), WriteBatch(huge[1:])]).stored.pieces == tuple(huge)


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=20), st.integers(1, 19))
def test_entries_do_not_depend_on_the_pieces(payloads: list[bytes], cut: int) -> None:
    whole = WriteBatch.from_columns(
        b"".join(payloads), np.array([len(one) for one in payloads], dtype="<u4").tobytes()
    )
    parts = [part for part in (payloads[:cut], payloads[cut:]) if part]
    for write_batch in (WriteBatch(payloads), WriteBatch.joined([WriteBatch(part) for part in parts])):
        assert entries_of(write_batch).tobytes() == entries_of(whole).tobytes()
        assert write_batch.stored.joined() == whole.stored.joined()
