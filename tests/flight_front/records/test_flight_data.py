import random
import struct

import pyarrow as pa
import pytest

from flight_front.errors import InvalidRequest
from flight_front.records.flight_data import (
    FlightData,
    decoded,
    decoded_batch,
    decoded_schema,
    encoded_action_type,
    encoded_batch,
    encoded_metadata,
    encoded_put_result,
    encoded_schema,
)
from tests.support.seeds import run_seed, told_on_failure

BATCH = pa.record_batch([pa.array([1, None, 3]), pa.array([b"a", b"", None])], names=["n", "value"])


def test_batch_is_the_same_after_encoding_and_decoding() -> None:
    schema = decoded_schema(decoded(encoded_schema(BATCH.schema)).header)
    data = decoded(encoded_batch(BATCH, b"about it"))
    assert schema == BATCH.schema
    assert data.metadata == b"about it"
    assert decoded_batch(data, schema).equals(BATCH)
    assert decoded_batch(decoded(encoded_batch(BATCH.slice(1, 1))), schema).equals(BATCH.slice(1, 1))


def test_empty_batch_is_encoded() -> None:
    assert decoded_batch(decoded(encoded_batch(BATCH.slice(0, 0))), BATCH.schema).num_rows == 0


def test_small_messages_have_their_fields() -> None:
    assert decoded(encoded_metadata(b"x" * 300)) == FlightData(b"", b"", b"x" * 300, b"")
    assert encoded_put_result(b"ok") == b"\n\x02ok"
    assert encoded_action_type("a", "b") == b"\n\x01a\x12\x01b"


def test_compressed_body_is_refused() -> None:
    written = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema, options=written) as writer:
        writer.write_batch(BATCH)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    message = reader.read_next_message()
    data = FlightData(header=message.metadata.to_pybytes(), body=message.body.to_pybytes())
    with pytest.raises(InvalidRequest, match="without compression"):
        decoded_batch(data, BATCH.schema)


def test_dictionary_batch_is_refused() -> None:
    coded = pa.record_batch([pa.array(["a", "b"]).dictionary_encode()], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, coded.schema) as writer:
        writer.write_batch(coded)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    message = reader.read_next_message()
    data = FlightData(header=message.metadata.to_pybytes(), body=message.body.to_pybytes())
    with pytest.raises(InvalidRequest, match="expected a record batch"):
        decoded_batch(data, coded.schema)


def test_offsets_beyond_the_body_are_refused() -> None:
    data = decoded(encoded_batch(BATCH))
    with pytest.raises(InvalidRequest):
        decoded_batch(FlightData(header=data.header, body=b"\x7f" * len(data.body)), BATCH.schema)


def test_value_that_declares_gigabytes_is_refused_without_memory_for_it() -> None:
    data = decoded(encoded_batch(pa.record_batch([pa.array([b"v" * 4711])], names=["value"])))
    length = struct.pack("<q", 4711)
    assert data.header.count(length) == 1
    header = data.header.replace(length, struct.pack("<q", 2 << 30))
    with pytest.raises(InvalidRequest, match="invalid batch"):
        decoded_batch(FlightData(header=header, body=data.body), pa.schema([("value", pa.binary())]))


def views(kind: pa.DataType, count: int, length: int, size_bytes: int) -> pa.RecordBatch:
    """Return a batch of views that all show the same bytes."""
    shown = struct.pack("<i4sii", length, b"xxxx", 0, 0) * count
    buffers = [None, pa.py_buffer(shown), pa.py_buffer(b"x" * size_bytes)]
    return pa.record_batch([pa.Array.from_buffers(kind, count, buffers)], names=["value"])


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()])
def test_views_that_share_their_bytes_are_refused_before_these_are_looked_at(kind: pa.DataType) -> None:
    """A message of a few megabytes must not become terabytes, to validate or to copy."""
    for length, total in ((1 << 20, 1 << 37), (-1, (1 << 49) - (1 << 17))):
        batch = views(kind, 1 << 17, length, 1 << 20)
        with pytest.raises(InvalidRequest, match=f"got views of {total} bytes"):
            decoded_batch(decoded(encoded_batch(batch)), batch.schema)


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()])
def test_views_are_decoded_when_they_show_no_more_than_was_sent(kind: pa.DataType) -> None:
    values = pa.array(["a longer value than twelve bytes", None, "short", ""], kind)
    for part in (values, values.slice(1, 2), values.slice(4)):
        batch = pa.record_batch([part], names=["value"])
        assert decoded_batch(decoded(encoded_batch(batch)), batch.schema).equals(batch)


def test_views_of_a_cut_buffer_are_refused() -> None:
    data = decoded(encoded_batch(views(pa.binary_view(), 100, 32, 3200)))
    views_length, end = struct.pack("<q", 1600), struct.pack("<q", 16)
    cut = FlightData(header=data.header.replace(views_length, end, 1), body=data.body)
    assert cut.header != data.header
    with pytest.raises(InvalidRequest, match="invalid batch"):
        decoded_batch(cut, pa.schema([("value", pa.binary_view())]))


@pytest.mark.parametrize("message", [b"\x08\x01", b"\x12\xff\x01", b"\x12", b"\xff" * 12, b"\x12\x05abc"])
def test_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidRequest, match="invalid message"):
        decoded(message)


def test_flipped_and_cut_messages_are_refused_or_decoded_and_nothing_else() -> None:
    seed = run_seed("flight data")
    random_numbers = random.Random(seed)
    with told_on_failure(seed=seed):
        _decode_damaged(random_numbers)


def _decode_damaged(random_numbers: random.Random) -> None:
    messages = [encoded_schema(BATCH.schema), encoded_batch(BATCH, b"m")]
    for _ in range(3000):
        message = bytearray(random_numbers.choice(messages))
        for _ in range(random_numbers.randint(1, 4)):
            message[random_numbers.randrange(len(message))] = random_numbers.randrange(256)
        del message[random_numbers.randrange(len(message) // 2, len(message) + 1) :]
        try:
            data = decoded(bytes(message))
            decoded_schema(data.header)
            decoded_batch(data, BATCH.schema)
        except InvalidRequest:
            pass
        try:
            decoded_batch(decoded(bytes(message)), BATCH.schema)
        except InvalidRequest:
            pass
