"""Bare Flight servers in one process: what the least costs that a server in Python on the same library has to do. A
ticket or a command says which of them is meant.

`bare` sends one batch from memory again and again, and drops what it is sent. `files` reads the payloads of each batch
from a file, and checks what it is sent as the front does and appends it to one, which it keeps: the memory of a file
that is removed is used again, which costs a tenth. `log` does the same with a log, through the library. None of them
has a login, limits or a second process."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl

import timestone
from flight_front.gateway.wire import SERVICE
from flight_front.listening import CHANNEL_OPTIONS
from flight_front.reading import RecordStream
from flight_front.records.flight_data import (
    decoded,
    decoded_batch,
    decoded_schema,
    encoded_batch,
    encoded_put_result,
    encoded_schema,
)
from flight_front.records.intake import frame, write_batch
from flight_front.records.queries import Query
from timestone.kernel.allocator_tuning import keep_freed_memory
from timestone.log import Log
from timestone.reading.arrow import SCHEMA

FILES, LOG = b"files", b"log"
_KEPT_BYTES = 64 << 20


def batch_of(count: int, record_bytes: int) -> pa.RecordBatch:
    """Return a batch as the Flight front sends it."""
    return pa.record_batch(
        [
            pa.array(["telemetry"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            pa.array(["plant/temperature"] * count),
            pa.nulls(count, SCHEMA.field("headers").type),
            pa.array([bytes(record_bytes)] * count, pa.binary()),
            pa.array([0] * count, pa.int32()),
        ],
        schema=SCHEMA,
    )


class BareServer:
    """The calls. A ticket is `KIND COUNT`, for so many batches; a command is `KIND`."""

    def __init__(self, count: int, record_bytes: int, file: IO[bytes], written: IO[bytes], log: Log) -> None:
        """file: for the payloads that are read. written: for those that are appended. log: for both."""
        self._file = file
        self._log = log
        self._written = written
        self._written_bytes = 0
        self._schema = encoded_schema(SCHEMA)
        self._batch = encoded_batch(batch_of(count, record_bytes))
        self._count, self._payload_bytes = count, count * record_bytes
        at = self._batch.index(bytes(self._payload_bytes))
        self._around = self._batch[:at], self._batch[at + self._payload_bytes :]

    def handlers(self) -> Any:
        """Return the handlers, for gRPC."""
        calls = {"DoGet": self._get, "DoPut": self._put}
        made = {name: grpc.stream_stream_rpc_method_handler(call) for name, call in calls.items()}
        return grpc.method_handlers_generic_handler(SERVICE, made)

    async def _get(self, _: Any, context: Any) -> None:
        kind, count = fl.Ticket.deserialize(await context.read()).ticket.split()
        await context.write(self._schema)
        if kind == LOG:
            await self._get_log(context, int(count))
        elif kind == FILES:
            await self._get_files(context, int(count))
        else:
            for _ in range(int(count)):
                await context.write(self._batch)

    async def _get_files(self, context: Any, count: int) -> None:
        file, size_bytes = self._file.fileno(), self._payload_bytes
        while os.fstat(file).st_size < count * size_bytes:
            os.write(file, bytes(size_bytes))
        for number in range(count):
            payloads = os.pread(file, size_bytes, number * size_bytes)
            await context.write(b"".join([self._around[0], payloads, self._around[1]]))

    async def _get_log(self, context: Any, count: int) -> None:
        log, payload = self._log, bytes(self._payload_bytes // self._count)
        while log.end_offset < count * self._count:
            log.append_many([payload] * self._count, topic="plant/temperature")
        stream = RecordStream(log, Query(log.name), 0, self._payload_bytes)
        while (message := stream.read(count * self._count)) is not None:
            await context.write(message)
        stream.close()

    async def _put(self, _: Any, context: Any) -> None:
        first = decoded(await context.read())
        kind = fl.FlightDescriptor.deserialize(first.descriptor).command
        schema = decoded_schema(first.header)
        while isinstance(message := await context.read(), bytes):
            if kind == FILES:
                data = decoded(message)
                decoded_batch(data, schema)
                self._written_bytes += os.pwrite(self._written.fileno(), data.body, self._written_bytes)
            elif kind == LOG:
                records = frame(decoded_batch(decoded(message), schema))
                self._log.append_batch(write_batch(records, self._log.topic_id), ack="written")
            await context.write(encoded_put_result(b"{}"))


async def serve(server: BareServer, listening: Callable[[int], None]) -> None:
    """Serve until cancelled. listening: called with the port."""
    made = grpc.aio.server(options=CHANNEL_OPTIONS)
    made.add_generic_rpc_handlers((server.handlers(),))
    port = made.add_insecure_port("127.0.0.1:0")
    await made.start()
    listening(port)
    try:
        await made.wait_for_termination()
    finally:
        await made.stop(None)


def main() -> None:
    """Serve until the process is ended. Arguments: records of a batch, bytes of a record, a folder."""
    keep_freed_memory(_KEPT_BYTES)
    count, record_bytes, directory = sys.argv[1:]
    with (
        tempfile.TemporaryFile(dir=directory) as file,
        tempfile.TemporaryFile(dir=directory) as written,
        timestone.open(Path(directory) / "bare") as store,
    ):
        server = BareServer(int(count), int(record_bytes), file, written, store.log("telemetry"))
        asyncio.run(serve(server, lambda port: print(port, flush=True)))


if __name__ == "__main__":
    main()
