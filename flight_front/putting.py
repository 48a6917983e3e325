"""DoPut: batches of a client become appends, or staged parts, and each is answered when its ack level is reached, in
order."""

import asyncio
import json
from typing import Any

import pyarrow as pa

from flight_front.calls import Call, Calls
from flight_front.errors import InvalidRequest
from flight_front.messages import ClientMessages
from flight_front.records.flight_data import (
    FlightData,
    decoded,
    decoded_batch,
    decoded_schema,
    encoded_put_result,
)
from flight_front.records.intake import check_columns, frame, write_batch
from flight_front.records.queries import Query
from flight_front.settings import FlightSettings
from flight_front.staging.parts import Staging, check_staged, staged_part
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.disk.json_document import integer, json_object
from timestone.errors import QueueFull
from timestone.log import Log
from timestone.spool.format import PostingId
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

Done = range | str | None
"""What became of a batch: its offsets, the name of a staged part, or None if it was appended before."""
_RETRY_S = 0.01
"""Pause before a batch is submitted again to a log whose queue is full."""


class Budget:
    """Bytes that may wait for the disk at a time. Event-loop thread only."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def take(self, size_bytes: int) -> None:
        """Wait until so many bytes are free, or all are."""
        while self.used_bytes and self.used_bytes + size_bytes > self._limit_bytes:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        self.used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Free bytes."""
        self.used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


class Put:
    """One DoPut."""

    def __init__(
        self,
        call: Call,
        messages: ClientMessages,
        calls: Calls,
        query: Query,
        log: Log,
        store: Store,
        staging: Staging,
        settings: FlightSettings,
        total: Budget,
    ) -> None:
        """total: bytes of all calls."""
        self._messages = messages
        self._calls = calls
        self._call = call
        self._query = query
        self._log = log
        self._staging = staging
        self._ack = _ack(query, settings.ack or store.config.ack)
        self._producer = None if query.producer is None else call.producer(query.producer)
        self._budgets = (Budget(settings.client_submitted_bytes), total)
        self._held_bytes = 0
        self._answers: asyncio.Queue[tuple[int, int, asyncio.Future[Done]] | None] = asyncio.Queue()

    async def run(self, schema: pa.Schema) -> None:
        """Append all that the client sends, and return when everything is answered. Raises CallRefused, and the errors
        of the engine."""
        if self._query.stage is None:
            check_columns(schema)
        else:
            check_staged(schema)
        taking, answering = asyncio.ensure_future(self._take(schema)), asyncio.ensure_future(self._answer())
        try:
            await asyncio.wait((taking, answering), return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                # Also after an error: what was appended before it is answered.
                self._answers.put_nowait(None)
                await answering
                taking.result()
            answering.result()  # an append that failed ends the call, also while its client is silent
        finally:
            taking.cancel()
            answering.cancel()
            del taking, answering  # an error in them has this frame in its traceback
            self._give(self._held_bytes)

    async def _take(self, schema: pa.Schema) -> None:
        number = 0
        while (message := await self._messages.next()) is not None:
            self._calls.counts.bytes_received += len(message)
            data = decoded(message)
            if not data.header:
                raise InvalidRequest(f"batch {number}: expected a record batch, got a message without one")
            size_bytes = len(data.body) + 1
            for budget in self._budgets:
                await budget.take(size_bytes)
            self._held_bytes += size_bytes
            if self._query.stage is not None:
                answer = await self._stage(data, schema, self._query.stage)
            elif self._producer is None:
                answer = await self._append(data, schema)
            else:
                answer = await self._append_once(data, schema, self._producer, number)
            self._answers.put_nowait((number, size_bytes, answer))
            number += 1
            del (
                message,
                data,
            )  # the next ones may be long in coming, and these are views of memory for all calls

    async def _append(self, data: FlightData, schema: pa.Schema) -> asyncio.Future[Done]:
        """Submit a batch, and return its offsets to come."""
        loop = asyncio.get_running_loop()
        offsets: asyncio.Future[Done] = loop.create_future()
        batch = await self._calls.in_thread(self._write_batch, data, schema)

        def done(submission: Submission) -> None:
            loop.call_soon_threadsafe(settle, submission)

        def settle(submission: Submission) -> None:
            if offsets.done():
                return
            if submission.error is not None:
                offsets.set_exception(submission.error)
            else:
                offsets.set_result(submission.offsets)

        while True:
            try:
                self._log.submit(batch, ack=self._ack, done=done)
                return offsets
            except QueueFull:
                await asyncio.sleep(_RETRY_S)

    def _write_batch(self, data: FlightData, schema: pa.Schema) -> WriteBatch:
        """Return the records of a message. Runs in a thread."""
        return write_batch(frame(decoded_batch(data, schema)), self._log.topic_id)

    async def _append_once(
        self, data: FlightData, schema: pa.Schema, producer: str, number: int
    ) -> asyncio.Future[Done]:
        """Append a batch of a producer."""
        posting = PostingId(self._log.name, self._log.partition, producer, _number(data.metadata, number))

        def append() -> range | None:
            records = frame(decoded_batch(data, schema))
            return self._staging.append_once(self._call, self._log, posting, records)

        return _done(await self._calls.in_spool_thread(append))

    async def _stage(self, data: FlightData, schema: pa.Schema, group: str) -> asyncio.Future[Done]:
        """Keep a part for a later posting."""

        def stage() -> str:
            part = staged_part(decoded_batch(data, schema))
            return self._staging.stage(self._call, self._log, group, part)

        # On a cluster it waits for other nodes, and the threads that read must not.
        run = self._calls.in_spool_thread if self._log.is_replicated else self._calls.in_thread
        return _done(await run(stage))

    async def _answer(self) -> None:
        """Send the answers in order, until the end of the queue or an append that failed."""
        while (waiting := await self._answers.get()) is not None:
            number, size_bytes, offsets = waiting
            try:
                found = await offsets
            finally:
                self._give(size_bytes)
            answer: dict[str, Any] = {"batch": number}
            if isinstance(found, str):
                answer["part"] = found
            elif found is None:
                answer["duplicate"] = True
            else:
                answer |= {"first": found.start, "end": found.stop}
                self._calls.counts.records_appended += len(found)
            at_once = self._producer is None and self._query.stage is None
            answer["ack"] = (self._ack if at_once else Ack.SYNCED).value
            await self._call.write(encoded_put_result(json.dumps(answer).encode()))

    def _give(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        for budget in self._budgets:
            budget.give(size_bytes)


def _done(result: Done) -> asyncio.Future[Done]:
    found: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
    found.set_result(result)
    return found


def first_batch(message: bytes) -> tuple[bytes, pa.Schema]:
    """Return descriptor and schema of the first message of a DoPut. Raises InvalidRequest."""
    data = decoded(message)
    return data.descriptor, decoded_schema(data.header)


def _ack(query: Query, default: Ack) -> Ack:
    if query.ack is None:
        return Ack.WRITTEN if default is Ack.MEMORY else default
    if query.ack not in (Ack.WRITTEN.value, Ack.SYNCED.value):
        raise InvalidRequest(f"invalid ack: expected written or synced, got {query.ack!r:.40}")
    return Ack(query.ack)


def _number(metadata: bytes, batch: int) -> int:
    try:
        return integer(json_object(metadata)["number"])
    except (ValueError, TypeError, KeyError):
        raise InvalidRequest(
            f'batch {batch}: expected its number in the metadata, as in {{"number": 7}}, since there is a producer'
        ) from None
