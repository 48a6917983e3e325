"""DoExchange: following with credit. The client sends `{"credit": n}` for n more batches and `{"commit": offset}`, with
`"metadata"` for a text that is kept with it. Without credit nothing is read for it, so a slow client costs its offset
and no memory."""

import asyncio

from flight_front.calls import Call, Calls
from flight_front.errors import InvalidRequest
from flight_front.following import Follower
from flight_front.readers import HeldReader
from flight_front.records.flight_data import decoded, encoded_metadata
from timestone.disk.json_document import integer, json_object

_CREDIT_MAX = 1 << 31


class Exchange:
    """One DoExchange after its first message."""

    def __init__(self, call: Call, calls: Calls, follower: Follower, held: HeldReader | None) -> None:
        """held: the reader that commits; None for one without a name."""
        self._call = call
        self._calls = calls
        self._follower = follower
        self._held = held
        self._credit = 0
        self._credited = asyncio.Event()

    async def run(self, first_metadata: bytes) -> None:
        """Send batches as credit allows, until the client ends its side. Raises CallRefused, and the errors of the
        engine."""
        hearing = asyncio.ensure_future(self._hear(first_metadata))
        sending = asyncio.ensure_future(self._send())
        try:
            done, _ = await asyncio.wait((hearing, sending), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            hearing.cancel()
            sending.cancel()
            await asyncio.wait((hearing, sending))

    async def _hear(self, metadata: bytes) -> None:
        while True:
            if metadata:
                await self._obey(metadata)
            message = await self._call.context.read()
            if not isinstance(message, bytes):
                return
            metadata = decoded(message).metadata

    async def _obey(self, metadata: bytes) -> None:
        try:
            values = json_object(metadata)
            credit = integer(values.pop("credit", 0), 0, _CREDIT_MAX)
            offset = integer(values.pop("commit")) if "commit" in values else None
            text = values.pop("metadata", "") if offset is not None else ""
            if values:
                raise ValueError(f"expected credit or commit, got {next(iter(values))!r:.40}")
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"invalid request: {error}") from None
        if offset is not None:
            if self._held is None:
                raise InvalidRequest("invalid commit: expected a command with `reader`")
            await self._calls.in_thread(self._held.commit, offset, text)
            await self._call.write(encoded_metadata(b'{"committed": %d}' % offset))
        if credit:
            self._credit = min(self._credit + credit, _CREDIT_MAX)
            self._credited.set()

    async def _send(self) -> None:
        while True:
            while not self._credit:
                self._credited.clear()
                with self._calls.woken_at_stop(self._credited):
                    await self._credited.wait()
                self._calls.check_running()
            await self._follower.wait()
            if self._held is not None:
                self._held.check()
            message = await self._follower.next(noted=True)
            if message:
                self._credit -= 1
                self._calls.counts.bytes_sent += len(message)
                await self._call.write(message)
