"""Rows that Spark hands to the sink as frames of a posting. The columns `value`, `topic` and `headers`; nothing is
done row by row, but for rows that have headers."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from pyspark_timestone.errors import InvalidRow
from timestone.errors import InvalidName, RecordTooLarge
from timestone.filters import validate_topic
from timestone.record import FLAG_TOMBSTONE, Header, HeaderKind, encode_headers
from timestone.spool.format import (
    FRAME_BYTES_MAX,
    FRAME_RECORDS_MAX,
    HEADERS_BYTES_MAX,
    NO_TOPIC_NUMBER,
    Frame,
)

_BATCH_ROWS = 10_000
"""Of a batch made of rows: as many as Spark puts into one."""


def batches_of_rows(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that Spark 4.0 hands over as the Arrow batches that later versions make of them."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in some], schema=schema)


def frames(batches: Iterable[pa.RecordBatch], topic: str | None, flags: int) -> Iterator[Frame]:
    """The rows in order. `topic` goes before the column of that name; `flags` are those of every record, and a null
    value makes a tombstone. Raises InvalidRow."""
    for batch in batches:
        for first in range(0, batch.num_rows, FRAME_RECORDS_MAX):
            yield from _frames(batch.slice(first, FRAME_RECORDS_MAX), topic, flags)


def _frames(batch: pa.RecordBatch, topic: str | None, flags: int) -> Iterator[Frame]:
    if batch.num_rows > 1 and batch.column("value").nbytes > FRAME_BYTES_MAX:
        half = batch.num_rows // 2
        yield from _frames(batch.slice(0, half), topic, flags)
        yield from _frames(batch.slice(half), topic, flags)
    elif batch.num_rows:
        yield _frame(batch, topic, flags)


def _frame(batch: pa.RecordBatch, topic: str | None, flags: int) -> Frame:
    count = batch.num_rows
    values = batch.column("value").cast(pa.binary())
    tombstones = np.asarray(values.is_null())
    data, lengths = _bytes_of(values.fill_null(b""))
    blocks = _header_blocks(batch)
    header_lengths = np.zeros(count, dtype=np.uint16)
    if blocks:
        data, lengths, header_lengths = _with_blocks(data, lengths, blocks)
    topics, numbers = _topics(batch, topic)
    return Frame(
        topics,
        lengths,
        numbers,
        header_lengths,
        np.where(tombstones, flags | FLAG_TOMBSTONE, flags).astype(np.uint16),
        data,
    )


def _bytes_of(values: pa.BinaryArray) -> tuple[bytes, npt.NDArray[np.uint32]]:
    """The bytes of an array without nulls, back to back, and the length of each."""
    _, positions_buffer, data = values.buffers()
    positions = np.frombuffer(positions_buffer, np.int32, len(values) + 1, 4 * values.offset)
    first, last = int(positions[0]), int(positions[-1])
    # Arrow leaves the buffer out when there is nothing in it.
    joined = data[first:last].to_pybytes() if data is not None else b""
    return joined, np.diff(positions).astype(np.uint32)


def _topics(batch: pa.RecordBatch, topic: str | None) -> tuple[list[str], npt.NDArray[np.uint32]]:
    """The distinct topics, and for each row the number of its own."""
    if topic is not None:
        return [topic], np.zeros(batch.num_rows, dtype=np.uint32)
    if "topic" not in batch.schema.names:
        return [], np.full(batch.num_rows, NO_TOPIC_NUMBER, dtype=np.uint32)
    encoded = pc.dictionary_encode(batch.column("topic"))
    topics = encoded.dictionary.to_pylist()
    for one in topics:
        try:
            validate_topic(one)
        except InvalidName as error:
            raise InvalidRow(f"column topic: {error}") from None
    numbers = pc.fill_null(encoded.indices.cast(pa.uint32()), NO_TOPIC_NUMBER)
    return topics, np.asarray(numbers)


def _header_blocks(batch: pa.RecordBatch) -> dict[int, bytes]:
    """The header block of each row that has one."""
    if "headers" not in batch.schema.names or batch.column("headers").null_count == batch.num_rows:
        return {}
    blocks = {}
    for number, items in enumerate(batch.column("headers").to_pylist()):
        if items:
            blocks[number] = _block(items)
    return blocks


def _block(items: list[dict[str, str | bytes | None]]) -> bytes:
    headers = []
    for item in items:
        key, value = item["key"], item["value"]
        if not isinstance(key, str):
            raise InvalidRow("column headers: the key of a header is null")
        headers.append(Header(HeaderKind.USER, key, value if isinstance(value, bytes) else b""))
    try:
        block = encode_headers(headers)
    except RecordTooLarge as error:
        raise InvalidRow(f"column headers: {error}") from None
    if len(block) > HEADERS_BYTES_MAX:
        raise InvalidRow(f"column headers: {len(block)} bytes, over the limit of {HEADERS_BYTES_MAX}")
    return block


def _with_blocks(
    data: bytes, lengths: npt.NDArray[np.uint32], blocks: dict[int, bytes]
) -> tuple[bytes, npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """The records with their header blocks in front of them."""
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
