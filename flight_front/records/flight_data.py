"""Bytes of FlightData: Arrow's IPC messages in the fields of a protobuf message, built and taken apart by hand so that
a payload is joined once. Knows no log and no call.

    1     descriptor      2     IPC header (flatbuffer)      3     application metadata      1000     IPC body

Bytes from a client are not trusted: lengths are checked, and a batch is validated whole before it is used."""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flight_front.errors import InvalidRequest

_DESCRIPTOR, _HEADER, _METADATA, _BODY = 1, 2, 3, 1000
_BYTES_TYPE = 2
"""Wire type of bytes."""
_SCHEMA_MESSAGE, _BATCH_MESSAGE = 1, 3
"""Types of an Arrow message (`MessageHeader`)."""
_HEADER_TYPE_FIELD, _HEADER_FIELD, _COMPRESSION_FIELD = 1, 2, 3
_CONTINUATION = b"\xff\xff\xff\xff"


class FlightData(NamedTuple):
    """Message of a stream."""

    descriptor: bytes = b""
    header: bytes = b""
    metadata: bytes = b""
    body: bytes | memoryview = b""


def encoded_schema(schema: pa.Schema) -> bytes:
    """Return the first message of a stream."""
    message = pa.ipc.read_message(schema.serialize())
    return _encoded(message.metadata, b"", b"")


def encoded_batch(batch: pa.RecordBatch, metadata: bytes = b"") -> bytes:
    """Return the message of a batch."""
    message = pa.ipc.read_message(batch.serialize())
    return _encoded(message.metadata, message.body, metadata)


def encoded_metadata(metadata: bytes) -> bytes:
    """Return a message with metadata alone."""
    return b"".join([_key(_METADATA), _varint(len(metadata)), metadata])


def encoded_put_result(metadata: bytes) -> bytes:
    """Return a PutResult."""
    return b"".join([_key(1), _varint(len(metadata)), metadata])


def encoded_action_type(kind: str, description: str) -> bytes:
    """Return an ActionType."""
    parts = [kind.encode(), description.encode()]
    return b"".join([_key(1), _varint(len(parts[0])), parts[0], _key(2), _varint(len(parts[1])), parts[1]])


def _encoded(header: Any, body: Any, metadata: bytes) -> bytes:
    parts = [_key(_HEADER), _varint(len(header)), header]
    if metadata:
        parts += (_key(_METADATA), _varint(len(metadata)), metadata)
    return b"".join([*parts, _key(_BODY), _varint(len(body)), body])


def decoded(message: bytes | memoryview) -> FlightData:
    """Take a message apart without copying its body. Raises InvalidRequest."""
    found: dict[int, memoryview] = dict(_fields(memoryview(message)))
    descriptor, header, metadata = (
        bytes(found.get(number, b"")) for number in (_DESCRIPTOR, _HEADER, _METADATA)
    )
    return FlightData(descriptor, header, metadata, found.get(_BODY, b""))


def decoded_schema(header: bytes) -> pa.Schema:
    """Return the schema in a header. Raises InvalidRequest."""
    if _message(header)[0] != _SCHEMA_MESSAGE:
        raise InvalidRequest("invalid stream: expected a schema in the first message")
    try:
        return pa.ipc.read_schema(pa.py_buffer(_framed(header)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(f"invalid schema: {error}") from None


def decoded_batch(data: FlightData, schema: pa.Schema) -> pa.RecordBatch:
    """Return the validated batch of a message. Raises InvalidRequest, also for a dictionary and for a compressed body,
    whose size in memory the client could choose freely."""
    kind, table = _message(data.header)
    if kind == _SCHEMA_MESSAGE:
        raise InvalidRequest(
            "invalid message: expected a batch of the first schema, got another schema; make another call for it"
        )
    if kind != _BATCH_MESSAGE:
        raise InvalidRequest(
            "invalid message: expected a record batch; decode dictionary columns before sending"
        )
    if _field(data.header, table, _COMPRESSION_FIELD) is not None:
        raise InvalidRequest("invalid batch: expected one without compression of its body")
    try:
        message = pa.ipc.read_message(pa.py_buffer(b"".join([_framed(data.header), data.body])))
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate()
        _check_views(batch)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(f"invalid batch: {error}") from None
    return batch


def _check_views(batch: pa.RecordBatch) -> None:
    """Raise InvalidRequest if the values of a column would take more than the message did: views may share their bytes,
    and each of them would be validated and copied."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if str(column.type) not in ("binary_view", "string_view") or not len(column):
            continue
        lengths = np.frombuffer(column.buffers()[1], np.uint32)[::4][column.offset :][: len(column)]
        total = int(lengths[column.is_valid().to_numpy(zero_copy_only=False)].sum(dtype=np.int64))
        most = column.get_total_buffer_size()
        if total > most:
            raise InvalidRequest(
                f"invalid column {name}: expected at most the {most} bytes that were sent, got views of {total} bytes; "
                "send binary or text in place of views"
            )


def _framed(header: bytes) -> bytes:
    padding = -len(header) % 8
    return b"".join([_CONTINUATION, struct.pack("<i", len(header) + padding), header, bytes(padding)])


def _message(header: bytes) -> tuple[int, int]:
    """Return the type of an Arrow message and the place of its table in the flatbuffer. Raises InvalidRequest."""
    try:
        root = struct.unpack_from("<I", header, 0)[0]
        kind_at = _field(header, root, _HEADER_TYPE_FIELD)
        table_at = _field(header, root, _HEADER_FIELD)
        if kind_at is None or table_at is None:
            raise InvalidRequest("invalid message: expected an Arrow message, got a header without a type")
        return header[kind_at], table_at + struct.unpack_from("<I", header, table_at)[0]
    except (struct.error, IndexError):
        raise InvalidRequest("invalid message: expected the header of an Arrow message") from None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Return the place of a field of a flatbuffer's table; None if it is left out."""
    try:
        vtable = table - struct.unpack_from("<i", buffer, table)[0]
        if vtable < 0:
            raise InvalidRequest("invalid message: a table points outside of its header")
        size = struct.unpack_from("<H", buffer, vtable)[0]
        slot = 4 + 2 * number
        offset = struct.unpack_from("<H", buffer, vtable + slot)[0] if slot + 2 <= size else 0
    except struct.error:
        raise InvalidRequest("invalid message: a table points outside of its header") from None
    return table + offset if offset else None


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and bytes of the fields of a protobuf message. Raises InvalidRequest."""
    at, end = 0, len(data)
    while at < end:
        key, at = _read_varint(data, at)
        if key & 7 != _BYTES_TYPE:
            raise InvalidRequest("invalid message: expected fields of bytes only")
        length, at = _read_varint(data, at)
        if length > end - at:
            raise InvalidRequest(f"invalid message: a field of {length} bytes exceeds the {end - at} left")
        yield key >> 3, data[at : at + length]
        at += length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise InvalidRequest("invalid message: cut within a number")


def _key(number: int) -> bytes:
    return _varint(number << 3 | _BYTES_TYPE)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
