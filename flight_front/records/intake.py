"""Records of a client: an Arrow batch becomes a frame, the columns of an append. Knows no call."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flight_front.errors import InvalidRequest
from timestone.kernel.entries import NO_TOPIC
from timestone.record import FLAG_REMOVED, FLAG_TOMBSTONE, Header, HeaderKind, encode_headers, user_headers
from timestone.spool.format import NO_TOPIC_NUMBER, Frame
from timestone.writing.write_batch import WriteBatch

_COLUMNS = ("value", "topic", "key", "headers", "flags")
_NULLS_MAX = 65_536
"""Records in a batch whose values have no type: they take no bytes of a message."""


def check_columns(schema: pa.Schema) -> None:
    """Raise InvalidRequest unless batches of this schema can be appended."""
    for field in schema:
        if field.name not in _COLUMNS:
            raise InvalidRequest(
                f"invalid schema: expected columns {', '.join(_COLUMNS)}, got {field.name!r:.60}"
            )
    if len(set(schema.names)) != len(schema.names):
        raise InvalidRequest("invalid schema: expected each column once")
    if "value" not in schema.names:
        raise InvalidRequest("invalid schema: expected a column `value`")
    if "headers" in schema.names and not _are_headers(schema.field("headers").type):
        raise InvalidRequest(
            "invalid column headers: expected a list of key and value as text or binary (no views), "
            f"got {schema.field('headers').type!s:.120}"
        )


def frame(batch: pa.RecordBatch) -> Frame:
    """Return the records of a batch. A null value is a tombstone. Raises InvalidRequest."""
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    values = _binary(columns["value"], "value")
    flags = _flags(columns.get("flags"), count)
    if values.null_count:
        flags[values.is_null().to_numpy(zero_copy_only=False)] |= FLAG_TOMBSTONE
        values = values.fill_null(b"")
    topics, numbers = _topics(columns.get("topic"), count)
    headers = [_binary_or_none(columns.get("key")), columns.get("headers")]
    if any(each is not None and each.null_count < count for each in headers):
        return _headed(values, headers[0], headers[1], topics, numbers, flags)
    positions = _positions(values)
    lengths = np.diff(positions)
    data = values.buffers()[2]
    # Another offset than 0 is that of a slice.
    stored = b"" if data is None or not count else data[int(positions[0]) : int(positions[-1])].to_pybytes()
    return Frame(topics, lengths.astype(np.uint32), numbers, np.zeros(count, np.uint16), flags, stored)


def write_batch(records: Frame, topic_id: Callable[[str], int]) -> WriteBatch:
    """Return the records as an append; `topic_id` assigns ids to topics."""
    ids = np.array([*map(topic_id, records.topics), NO_TOPIC], dtype=np.uint32)
    return WriteBatch.from_columns(
        records.data,
        records.lengths.tobytes(),
        ids[np.minimum(records.topic_numbers, len(records.topics))],
        flags=records.flags,
        header_lengths=records.header_lengths if records.header_lengths.any() else 0,
    )


def _are_headers(kind: pa.DataType) -> bool:
    """Return whether headers may have this type: one in which each of them takes bytes of the message."""
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        return False
    own = ("binary", "large_binary", "string", "large_string")
    return {each.name: str(each.type) in own for each in kind.value_type} == {"key": True, "value": True}


def _binary(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        if len(column) > _NULLS_MAX:
            raise InvalidRequest(
                f"invalid column {name}: expected at most {_NULLS_MAX} nulls without a type, got {len(column)}"
            )
        return column.cast(pa.binary())
    if not (_is(kind, "binary") or _is(kind, "string")):
        raise InvalidRequest(f"invalid column {name}: expected binary or text, got {kind}")
    chosen = pa.large_binary() if "large" in str(kind) else pa.binary()
    return column if kind == chosen else column.cast(chosen)


def _is(kind: pa.DataType, word: str) -> bool:
    return str(kind) in (word, f"large_{word}", f"{word}_view")


def _binary_or_none(column: pa.Array | None) -> pa.Array | None:
    return None if column is None else _binary(column, "key")


def _positions(values: pa.Array) -> npt.NDArray[np.int64]:
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(1, np.int64)
    found = np.frombuffer(buffer, width)[values.offset : values.offset + len(values) + 1]
    return found.astype(np.int64)


def _flags(column: pa.Array | None, count: int) -> npt.NDArray[np.uint16]:
    if column is None or column.null_count == count:
        return np.zeros(count, np.uint16)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InvalidRequest(f"invalid column flags: expected whole numbers without nulls, got {column.type}")
    found = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if count and (found.min() < 0 or found.max() >= FLAG_REMOVED):
        raise InvalidRequest(f"invalid column flags: expected 0 to {FLAG_REMOVED - 1}")
    narrow: npt.NDArray[np.uint16] = found.astype(np.uint16)
    return narrow


def _topics(column: pa.Array | None, count: int) -> tuple[tuple[str, ...], npt.NDArray[np.uint32]]:
    nameless = np.full(count, NO_TOPIC_NUMBER, np.uint32)
    if column is None or column.null_count == count:
        return (), nameless
    if not _is(column.type, "string"):
        raise InvalidRequest(f"invalid column topic: expected text, got {column.type}")
    # A call of Arrow's functions costs as much as coding some hundred topics.
    coded = (column.cast(pa.large_string()) if "view" in str(column.type) else column).dictionary_encode()
    indices = coded.indices if not coded.indices.null_count else pc.fill_null(coded.indices, -1)
    # -1 becomes NO_TOPIC_NUMBER
    return tuple(coded.dictionary.to_pylist()), indices.to_numpy(zero_copy_only=False).astype(np.uint32)


def _headed(
    values: pa.Array,
    keys: pa.Array | None,
    headers: pa.Array | None,
    topics: tuple[str, ...],
    numbers: npt.NDArray[np.uint32],
    flags: npt.NDArray[np.uint16],
) -> Frame:
    """Return records with header blocks, one by one: they are rare."""
    count = len(values)
    named: list[bytes | None] = [None] * count if keys is None else keys.to_pylist()
    listed = [None] * count if headers is None else headers.to_pylist()
    parts: list[bytes] = []
    lengths, block_lengths = np.zeros(count, np.uint32), np.zeros(count, np.uint16)
    for number, payload in enumerate(values.to_pylist()):
        key = named[number]
        items = [] if key is None else [Header(HeaderKind.KEY, "", key)]
        try:
            items += user_headers([(each["key"], each["value"]) for each in listed[number] or ()])
            block = encode_headers(items)
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"invalid headers of record {number}: {error}") from None
        parts += (block, payload)
        lengths[number], block_lengths[number] = len(block) + len(payload), len(block)
    return Frame(topics, lengths, numbers, block_lengths, flags, b"".join(parts))
