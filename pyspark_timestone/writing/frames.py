"""The rows of a task as frames of a posting. The columns `value`, `topic`, `headers` and `key`; nothing is done row by
row, but for rows that have headers or a key."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.writing.rows import Rows
from timestone.errors import InvalidName, RecordTooLarge
from timestone.filters import validate_topic
from timestone.record import FLAG_TOMBSTONE, Header, HeaderKind, encode_headers
from timestone.spool.format import (
    FRAME_BYTES_MAX,
    FRAME_RECORDS_MAX,
    HEADERS_BYTES_MAX,
    MARK_BYTES,
    NO_TOPIC_NUMBER,
    Frame,
)


def frames(
    some: Iterable[Rows], topic: str | None, flags: int, limits: Mapping[LogPartition, int]
) -> Iterator[tuple[LogPartition, Frame]]:
    """Yield the rows in order, with the log that they go to. `topic` goes before the column of that name; `flags` are
    those of every record, and a null value makes a tombstone. limits: the most bytes of a record, of logs that are
    known. Raises InvalidRow."""
    for rows in some:
        for first in range(0, rows.batch.num_rows, FRAME_RECORDS_MAX):
            part = rows.slice(first, FRAME_RECORDS_MAX)
            for frame in _frames(part, topic, flags, limits.get(rows.log)):
                yield rows.log, frame


def _frames(rows: Rows, topic: str | None, flags: int, limit_bytes: int | None) -> Iterator[Frame]:
    count = rows.batch.num_rows
    if count > 1 and rows.batch.column("value").nbytes > FRAME_BYTES_MAX:
        yield from _frames(rows.slice(0, count // 2), topic, flags, limit_bytes)
        yield from _frames(rows.slice(count // 2, count), topic, flags, limit_bytes)
    elif count:
        yield _frame(rows, topic, flags, limit_bytes)


def _frame(rows: Rows, topic: str | None, flags: int, limit_bytes: int | None) -> Frame:
    values = rows.batch.column("value").cast(pa.binary())
    tombstones = np.asarray(values.is_null())
    data, lengths = _bytes_of(values.fill_null(b""))
    blocks = _header_blocks(rows)
    header_lengths = np.zeros(len(lengths), dtype=np.uint16)
    if blocks:
        data, lengths, header_lengths = _with_blocks(data, lengths, blocks)
    _check_lengths(rows, lengths, limit_bytes)
    topics, numbers = _topics(rows, topic)
    return Frame(
        topics,
        lengths,
        numbers,
        header_lengths,
        np.where(tombstones, flags | FLAG_TOMBSTONE, flags).astype(np.uint16),
        data,
    )


def _check_lengths(rows: Rows, lengths: npt.NDArray[np.uint32], limit_bytes: int | None) -> None:
    """Raise InvalidRow for a record that its log would refuse. Any may become the first of a frame, which gets the
    mark of the posting besides."""
    if limit_bytes is None or int(lengths.max()) + MARK_BYTES <= limit_bytes:
        return
    number = int(np.argmax(lengths.astype(np.int64) + MARK_BYTES > limit_bytes))
    raise rows.misfit(
        number,
        f"a record of {lengths[number]:,} bytes, headers and key included, is over the {limit_bytes - MARK_BYTES:,}"
        f" that the sink can append to log {rows.log} (its record_bytes, {limit_bytes:,}, less {MARK_BYTES})",
    )


def _bytes_of(values: pa.BinaryArray) -> tuple[bytes, npt.NDArray[np.uint32]]:
    """Return the bytes of an array without nulls, back to back, and the length of each."""
    _, positions_buffer, data = values.buffers()
    positions = np.frombuffer(positions_buffer, np.int32, len(values) + 1, 4 * values.offset)
    first, last = int(positions[0]), int(positions[-1])
    # Arrow leaves the buffer out when there is nothing in it.
    joined = data[first:last].to_pybytes() if data is not None else b""
    return joined, np.diff(positions).astype(np.uint32)


def _topics(rows: Rows, topic: str | None) -> tuple[list[str], npt.NDArray[np.uint32]]:
    """Return the distinct topics, and for each row the number of its topic."""
    batch = rows.batch
    if topic is not None:
        return [topic], np.zeros(batch.num_rows, dtype=np.uint32)
    if "topic" not in batch.schema.names:
        return [], np.full(batch.num_rows, NO_TOPIC_NUMBER, dtype=np.uint32)
    encoded = pc.dictionary_encode(batch.column("topic"))
    numbers = np.asarray(pc.fill_null(encoded.indices.cast(pa.uint32()), NO_TOPIC_NUMBER))
    topics = encoded.dictionary.to_pylist()
    for number, one in enumerate(topics):
        try:
            validate_topic(one)
        except InvalidName as error:
            raise rows.misfit(int(np.argmax(numbers == number)), f"column topic: {error}") from None
    return topics, numbers


def _header_blocks(rows: Rows) -> dict[int, bytes]:
    """Return the header block of each row that has headers or a key, in order."""
    keys, headers = _present(rows.batch, "key"), _present(rows.batch, "headers")
    return {
        number: _block(rows, number, keys.get(number), headers.get(number, []))
        for number in sorted(keys.keys() | headers.keys())
    }


def _present(batch: pa.RecordBatch, name: str) -> dict[int, Any]:
    """Return the non-null values of a column that may be missing, by row."""
    if name not in batch.schema.names or batch.column(name).null_count == batch.num_rows:
        return {}
    return {number: value for number, value in enumerate(batch.column(name).to_pylist()) if value is not None}


def _block(rows: Rows, number: int, key: str | bytes | None, items: Sequence[Mapping[str, Any]]) -> bytes:
    headers = []
    if key is not None:
        headers.append(Header(HeaderKind.KEY, "", key.encode() if isinstance(key, str) else key))
    for item in items:
        if item["key"] is None:
            raise rows.misfit(number, "column headers: the key of a header is null")
        headers.append(Header(HeaderKind.USER, item["key"], item["value"] or b""))
    try:
        block = encode_headers(headers)
    except RecordTooLarge as error:
        raise rows.misfit(number, f"column headers: {error}") from None
    if len(block) > HEADERS_BYTES_MAX:
        reason = f"key and headers of {len(block)} bytes are over the limit of {HEADERS_BYTES_MAX}"
        raise rows.misfit(number, f"column headers: {reason}")
    return block


def _with_blocks(
    data: bytes, lengths: npt.NDArray[np.uint32], blocks: dict[int, bytes]
) -> tuple[bytes, npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Return the records with their header blocks before them."""
    header_lengths = np.zeros(len(lengths), dtype=np.uint16)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    pieces: list[bytes] = []
    position = 0
    for number, block in blocks.items():
        start = int(starts[number])
        pieces += (data[position:start], block)
        header_lengths[number] = len(block)
        position = start
    pieces.append(data[position:])
    return b"".join(pieces), lengths + header_lengths, header_lengths
