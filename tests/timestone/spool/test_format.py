"""The formats of the spool: written bytes are decoded to their input, and invalid bytes are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damaged_json import DAMAGED_JSON
from tests.support.postings import frame
from timestone.disk.files import Files
from timestone.errors import CorruptLog, InvalidName, UnsupportedFormat
from timestone.kernel.entries import NO_TOPIC
from timestone.record import Header, HeaderKind, decode_headers, encode_headers
from timestone.spool.format import HEADERS_BYTES_MAX, MARK_BYTES, Frame, Posting, PostingId, read_frames

ID = PostingId("commands", 0, "query", 7)


def read(path: Path, data: bytes) -> list[Frame]:
    path.write_bytes(data)
    return list(read_frames(Files(), path))


def test_frames_are_decoded_to_their_input(tmp_path: Path) -> None:
    frames = [frame([b"one", b"", b"three"]), frame([b"x" * 1000], topic=None), frame([b""], "a/ü")]
    found = read(tmp_path / "part", b"".join(one.encode() for one in frames))
    for before, after in zip(frames, found, strict=True):
        assert list(after.topics) == list(before.topics)
        assert after.data == before.data
        for column in ("lengths", "topic_numbers", "header_lengths", "flags"):
            assert getattr(after, column).tolist() == getattr(before, column).tolist()


def test_a_frame_has_the_bytes_that_the_format_page_shows() -> None:
    assert frame([b"on"], "d/1").encode().hex(" ") == (
        "54 53 50 46 01 00 00 00 01 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00 05 00 00 00 "
        "c3 fb 17 2d 03 00 64 2f 31 02 00 00 00 00 00 00 00 00 00 00 00 6f 6e"
    )


@given(data=st.data())
def test_frame_with_any_changed_byte_is_damage(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(frame([b"one", b"two"]).encode())
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptLog, UnsupportedFormat)):
        read(tmp_path_factory.mktemp("part") / "part", bytes(whole))


def test_truncated_part_is_damage(tmp_path: Path) -> None:
    whole = frame([b"one", b"two"]).encode()
    for length in range(1, len(whole)):
        with pytest.raises(CorruptLog):
            read(tmp_path / "part", whole[:length])


def test_batch_begins_with_the_mark_at_any_record_of_the_frame() -> None:
    one = frame([b"a", b"bb", b"ccc"])
    ids = np.array([5, NO_TOPIC], dtype=np.uint32)
    mark = ID.mark(3, 0)
    assert len(mark) == MARK_BYTES
    whole = one.write_batch(ids, mark, 0)
    assert (b"".join(whole.stored.pieces), whole.count) == (mark + b"abbccc", 3)
    assert list(np.asarray(whole.header_lengths)) == [MARK_BYTES, 0, 0]
    rest = one.write_batch(ids, ID.mark(3, 2), 2)
    assert (b"".join(rest.stored.pieces), rest.count) == (ID.mark(3, 2) + b"ccc", 1)
    assert list(np.asarray(rest.topic_ids)) == [5]


def test_mark_is_recognised_only_by_its_own_posting() -> None:
    (mark,) = decode_headers(ID.mark(3, 2))
    assert ID.marked(mark) == (3, 2)
    for other in (ID._replace(number=8), ID._replace(producer="other"), ID._replace(log="other")):
        assert other.marked(mark) is None
    assert ID.marked(Header(HeaderKind.USER, "", mark.value)) is None
    assert ID.marked(Header(HeaderKind.POSTING, "", b"short")) is None


def test_header_blocks_have_to_be_whole_and_leave_room_for_the_mark() -> None:
    def with_block(block: bytes) -> Frame:
        plain = frame([block + b"value"])
        return Frame(
            (), plain.lengths, plain.topic_numbers, np.array([len(block)], np.uint16), plain.flags, plain.data
        )

    with_block(encode_headers([Header(HeaderKind.USER, "k", b"v")])).check_headers()
    with_block(b"").check_headers()
    with pytest.raises(ValueError, match="header block ends inside an item"):
        with_block(b"\0\1").check_headers()
    room = HEADERS_BYTES_MAX - 7
    with_block(encode_headers([Header(HeaderKind.USER, "", b"v" * room)])).check_headers()
    with pytest.raises(ValueError, match="invalid header block: expected at most"):
        with_block(encode_headers([Header(HeaderKind.USER, "", b"v" * (room + 1))])).check_headers()


def test_posting_is_decoded_to_its_input(tmp_path: Path) -> None:
    posting = Posting("commands", 2, "query", 7, ("staging/g/1", "staging/g/2"), True)
    assert Posting.decode(posting.encode(), tmp_path) == posting


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 2}, UnsupportedFormat),
        ({"parts": ["../../etc/passwd"]}, InvalidName),
        ({"parts": ["/etc/passwd"]}, InvalidName),
        ({"log": "../x"}, InvalidName),
        ({"number": -1}, InvalidName),
        ({"producer": ""}, InvalidName),
        ({"number": "seven"}, CorruptLog),
        ({"number": 1.5}, CorruptLog),
        ({"parts": 5}, CorruptLog),
        ({"parts": "abc"}, CorruptLog),
        ({"parts": [1]}, CorruptLog),
        ({"log": 5}, CorruptLog),
        ({"partition": "0"}, CorruptLog),
        ({"producer": 5}, CorruptLog),
        ({"remembered": 1}, CorruptLog),
        ({"colour": "red"}, CorruptLog),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_document_is_refused_when_it_is_not_a_posting(
    change: dict[str, object], error: type[Exception], tmp_path: Path
) -> None:
    document = json.loads(Posting("commands", 0, "query", 7, (), True).encode())
    with pytest.raises(error):
        Posting.decode(json.dumps(document | change).encode(), tmp_path)


@pytest.mark.parametrize("document", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_unreadable_document_is_damage_with_the_path(document: bytes, tmp_path: Path) -> None:
    with pytest.raises(CorruptLog, match=f"{tmp_path}: the file is not a posting"):
        Posting.decode(document, tmp_path)


def test_names_of_postings_sort_by_number() -> None:
    stems = [ID._replace(number=number).stem for number in (2, 10, 100)]
    assert sorted(stems) == stems
