"""Format of a posting: records that another process gives to the owner of a store, which appends them exactly once.

Contains the two file formats (docs/formats/posting.md) and the mark that an appended posting leaves in the log.
`producer.py` writes postings, `consumer.py` appends them.

A posting is a small JSON file that names its *parts*. Each part is a file of *frames*, and any number of processes may
write parts. A frame is a batch of records that are appended together. Producer and number identify a posting, so that
one that is posted twice is appended once."""

import hashlib
import json
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from timestone.disk.files import Files
from timestone.disk.json_document import INT64_MAX, integer, json_object
from timestone.errors import CorruptLog, InvalidName, UnsupportedFormat
from timestone.format import names
from timestone.kernel.loops import crc32c
from timestone.record import (
    HEADER_BLOCK_BYTES_MAX,
    Header,
    HeaderKind,
    decode_headers,
    encode_headers,
)
from timestone.writing.write_batch import WriteBatch

FORMAT_VERSION = 1
FRAME_RECORDS_MAX = 1 << 16
FRAME_BYTES_MAX = 8 << 20
"""Maximum record bytes of a frame with more than one record: the owner holds one frame in memory."""
NO_TOPIC_NUMBER = 0xFFFF_FFFF
_MAGIC = b"TSPF"
_HEAD = struct.Struct("<4sHHIIQI")
assert _HEAD.size == 28
_MARK = struct.Struct("<8sQII")
assert _MARK.size == 24
MARK_BYTES = 7 + _MARK.size
"""What the mark adds to the header block of a frame's first record."""
HEADERS_BYTES_MAX = HEADER_BLOCK_BYTES_MAX - MARK_BYTES
_PRODUCER_MOST = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """Records that are appended as one batch. The columns are those of `WriteBatch`; topic numbers are indexes into
    `topics`."""

    topics: Sequence[str]
    lengths: npt.NDArray[np.uint32]
    topic_numbers: npt.NDArray[np.uint32]
    header_lengths: npt.NDArray[np.uint16]
    flags: npt.NDArray[np.uint16]
    data: bytes

    @property
    def count(self) -> int:
        return len(self.lengths)

    def encode(self) -> bytes:
        """Return the bytes of the frame. Raises InvalidName for a topic over 65,535 bytes."""
        encoded = [topic.encode() for topic in self.topics]
        if any(len(topic) > 0xFFFF for topic in encoded):
            raise InvalidName("invalid topic: expected at most 65,535 bytes")
        topics = b"".join([np.array([len(one) for one in encoded], dtype="<u2").tobytes(), *encoded])
        body = b"".join(
            [
                topics,
                self.lengths.astype("<u4").tobytes(),
                self.topic_numbers.astype("<u4").tobytes(),
                self.header_lengths.astype("<u2").tobytes(),
                self.flags.astype("<u2").tobytes(),
                self.data,
            ]
        )
        head = _HEAD.pack(_MAGIC, FORMAT_VERSION, 0, self.count, len(encoded), len(self.data), len(topics))
        return b"".join([head, crc32c(body, crc32c(head)).to_bytes(4, "little"), body])

    def write_batch(self, topic_ids: npt.NDArray[np.uint32], mark: bytes, first: int) -> WriteBatch:
        """Return the records from `first` on, with `mark` in the header block of the first.

        topic_ids: ids of `topics` in the log, and one more for a record without a topic."""
        lengths, header_lengths = self.lengths[first:].copy(), self.header_lengths[first:].copy()
        position = int(self.lengths[:first].sum(dtype=np.uint64))
        lengths[0] += len(mark)
        header_lengths[0] += len(mark)
        return WriteBatch.from_columns(
            mark + self.data[position:],
            lengths.astype("<u4").tobytes(),
            topic_ids[np.minimum(self.topic_numbers[first:], len(self.topics))],
            flags=self.flags[first:],
            header_lengths=header_lengths,
        )

    def check_headers(self) -> None:
        """Raise ValueError for a header block that is malformed or leaves no room for the mark."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        if (self.header_lengths > np.minimum(self.lengths, HEADERS_BYTES_MAX)).any():
            raise ValueError(
                f"invalid header block: expected at most {HEADERS_BYTES_MAX} bytes and no more than its record"
            )
        for number in np.flatnonzero(self.header_lengths).tolist():
            start = int(ends[number]) - int(self.lengths[number])
            decode_headers(self.data[start : start + int(self.header_lengths[number])])


def read_frames(files: Files, path: Path) -> Generator[Frame, None, None]:
    """Yield the frames of a part. Raises CorruptLog, UnsupportedFormat, OSError."""
    with files.opened(path) as fd:
        yield from _frames(path, files.size(fd), files.reader(fd))


def frames_of(path: Path, part: bytes) -> Generator[Frame, None, None]:
    """Yield the frames of a part that was read. path: for messages. Raises CorruptLog, UnsupportedFormat."""
    yield from _frames(path, len(part), lambda position, size: part[position : position + size])


def _frames(path: Path, size: int, read: Callable[[int, int], bytes]) -> Generator[Frame, None, None]:
    position = 0
    while position < size:
        head = read(position, _HEAD.size + 4)
        body_bytes = _body_bytes(path, head, size - position)
        body = read(position + len(head), body_bytes)
        yield _decode(path, head, body)
        position += len(head) + body_bytes


def _body_bytes(path: Path, head: bytes, room: int) -> int:
    if len(head) < _HEAD.size + 4:
        raise CorruptLog(path, "the file ends inside the head of a frame")
    magic, version, _, count, topic_count, data_bytes, topics_bytes = _HEAD.unpack_from(head)
    if magic != _MAGIC:
        raise CorruptLog(path, "the file is not a part of a posting: wrong magic number")
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(path, version, FORMAT_VERSION)
    body_bytes = int(topics_bytes + 12 * count + data_bytes)
    if not 1 <= count <= FRAME_RECORDS_MAX or 2 * topic_count > topics_bytes:
        raise CorruptLog(
            path, f"invalid frame: {count} records, {topic_count} topics in {topics_bytes} bytes"
        )
    if body_bytes > room - len(head):
        raise CorruptLog(
            path, f"a frame of {body_bytes} bytes exceeds the {room - len(head)} left in the file"
        )
    return body_bytes


def _decode(path: Path, head: bytes, body: bytes) -> Frame:
    if crc32c(body, crc32c(head[: _HEAD.size])) != int.from_bytes(head[_HEAD.size :], "little"):
        raise CorruptLog(path, "a frame does not match its checksum")
    _, _, _, count, topic_count, data_bytes, topics_bytes = _HEAD.unpack_from(head)
    sizes = np.frombuffer(body, "<u2", topic_count).tolist()
    topics, at = [], 2 * topic_count
    for length in sizes:
        topics.append(_text(path, body[at : at + length]))
        at += length
    if at != topics_bytes:
        raise CorruptLog(path, f"the topics of a frame take {at} bytes, its head states {topics_bytes}")
    columns = []
    for kind in ("<u4", "<u4", "<u2", "<u2"):
        columns.append(np.frombuffer(body, kind, count, at))
        at += columns[-1].nbytes
    lengths, numbers, header_lengths, flags = columns
    if int(lengths.sum(dtype=np.uint64)) != data_bytes:
        raise CorruptLog(
            path, f"the records of a frame take {lengths.sum()} bytes, its head states {data_bytes}"
        )
    if ((numbers >= topic_count) & (numbers != NO_TOPIC_NUMBER)).any():
        raise CorruptLog(path, "a record has a topic number that its frame does not define")
    return Frame(tuple(topics), lengths, numbers, header_lengths, flags, body[at:])


def _text(path: Path, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptLog(path, f"a topic is not valid UTF-8: {error}") from error


class PostingId(NamedTuple):
    """Identity of a posting: its number among those of a producer to one log. Numbers increase, with gaps allowed."""

    log: str
    partition: int
    producer: str
    number: int

    @property
    def key(self) -> str:
        """Key of the progress of the producer in the catalogue."""
        return f"{names.log_folder(self.log, self.partition)}/{self.producer}"

    @property
    def stem(self) -> str:
        """Stem of its file names, which sort by number."""
        return f"{self.number:020d}-{self._digest(16).hex()}"

    def mark(self, frame: int, first: int) -> bytes:
        """Return the header item that marks the records of a frame of this posting, from record `first` on."""
        value = _MARK.pack(self._digest(8), self.number, frame, first)
        return encode_headers([Header(HeaderKind.POSTING, "", value)])

    def marked(self, header: Header) -> tuple[int, int] | None:
        """Return frame and first record of a mark; None for a header item that is not a mark of this posting."""
        if header.kind != HeaderKind.POSTING or len(header.value) != _MARK.size:
            return None
        who, number, frame, first = _MARK.unpack(header.value)
        return (frame, first) if (who, number) == (self._digest(8), self.number) else None

    def _digest(self, size_bytes: int) -> bytes:
        return hashlib.blake2b(self.key.encode(), digest_size=size_bytes).digest()


def check_producer(name: str) -> None:
    """Raise InvalidName for a text that cannot name a producer."""
    if not 1 <= len(name) <= _PRODUCER_MOST or not name.isprintable():
        raise InvalidName(
            f"invalid producer: expected 1 to {_PRODUCER_MOST} printable characters, got {name!r:.250}"
        )


@dataclass(frozen=True, slots=True)
class Posting:
    """Parts to append to a log, in order."""

    log: str
    partition: int
    producer: str
    number: int
    parts: tuple[str, ...]
    """Paths of the parts, relative to the inbox folder."""
    remembered: bool
    """Whether progress of the producer is kept afterwards, because it will post again."""

    def __post_init__(self) -> None:
        names.validate_target(self.log, self.partition)
        check_producer(self.producer)
        if not 0 <= self.number < 1 << 63:
            raise InvalidName(f"invalid posting number: expected 0 to 2^63 - 1, got {self.number}")
        for part in self.parts:
            if part.startswith("/") or ".." in Path(part).parts:
                raise InvalidName(f"invalid part: expected a path inside the inbox, got {part!r}")

    @property
    def id(self) -> PostingId:
        return PostingId(self.log, self.partition, self.producer, self.number)

    def encode(self) -> bytes:
        return json.dumps({"version": FORMAT_VERSION, **asdict(self)}, sort_keys=True).encode() + b"\n"

    @classmethod
    def decode(cls, document: bytes, path: Path) -> "Posting":
        """Decode the JSON file of a posting. Raises CorruptLog, UnsupportedFormat, InvalidName."""
        try:
            values = json_object(document)
            version = values.pop("version")
            if version != FORMAT_VERSION:
                raise UnsupportedFormat(path, version, FORMAT_VERSION)
            integer(values["number"], -INT64_MAX)
            if not isinstance(values["producer"], str) or type(values["remembered"]) is not bool:
                raise TypeError(
                    f"invalid producer {values['producer']!r:.40} or remembered {values['remembered']!r:.40}"
                )
            parts = values["parts"]
            if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
                raise TypeError(f"invalid parts: expected a list of names, got {parts!r:.40}")
            values["parts"] = tuple(parts)
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InvalidName):
                raise
            raise CorruptLog(path, f"the file is not a posting: {error!r}") from error
