"""Bare Flight server, run as a process: serves one batch from memory again and again, and drops what it is sent.

It is pyarrow's own server, written in C++: what Arrow Flight costs without a log behind it."""

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from timestone.reading.arrow import SCHEMA


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


class BareServer(fl.FlightServerBase):  # type: ignore[misc]
    """Server of one batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._batch = batch

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Send the batch as many times as the ticket says."""

        def batches() -> Iterator[pa.RecordBatch]:
            for _ in range(int(ticket.ticket)):
                yield self._batch

        return fl.GeneratorStream(self._batch.schema, batches())

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer each batch and drop it."""
        for _ in reader:
            writer.write(pa.py_buffer(b"{}"))


def main() -> None:
    """Serve until the process is ended. Arguments: records of a batch, bytes of a record."""
    count, record_bytes = map(int, sys.argv[1:])
    server = BareServer(batch_of(count, record_bytes))
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
