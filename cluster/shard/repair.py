"""Repair of one log of a replica: asks the leader for the records of damaged segments and for lost topic names, one
message after another, and puts them in place. What the protocol has to know of a log that was opened or repaired."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from timestone.errors import TimestoneError
from timestone.replication.replica_repair import BeyondRepair, SegmentRepair
from timestone.replication.replicated_log import ReplicatedLog
from timestone.segment import Segment
from timestone_cluster.frames import Fetch, Fetched
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.transport.wire import StoredData

_LOGGER = logging.getLogger("timestone.cluster")
_ANSWER_S = 5.0
_MESSAGE_BYTES = 1 << 20
"""Most records or names in a message, and one more."""

Ask = Callable[[int, int, int], None]
"""Sends a `Fetch` of these first, end and names_first."""


class Repair:
    """One repair. Event-loop thread only; the disk is used in threads."""

    def __init__(self, log: ReplicatedLog, ask: Ask) -> None:
        self._log, self._ask = log, ask
        self._answer: asyncio.Future[Fetched] | None = None

    def received(self, frame: Fetched) -> None:
        """Take an answer of the leader."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    async def run(self) -> None:
        """Repair all that can be. Raises BeyondRepair if something cannot be; ValueError if it cannot be yet, or the
        leader has other records; TimeoutError if it does not answer; TimestoneError, OSError."""
        repair = self._log.repair
        if (first := repair.lost_name) is not None:
            await self._restore_names(first)
        while bases := await asyncio.to_thread(repair.bases):
            for base in bases:
                segment = await asyncio.to_thread(repair.wanted, base)
                if segment is not None:
                    await self._rewrite(segment)
        if not self._log.is_whole:
            raise BeyondRepair("offsets are missing")

    async def _restore_names(self, first: int) -> None:
        names: list[str] = []
        while (at := first + len(names)) < self._log.names_count:
            found = await self._fetched(0, 0, at)
            if found.names_first != at or not found.names:
                raise ValueError(f"the leader has no topic names from {at} on")
            names += found.names
        self._log.repair.restore_names(first, names[: self._log.names_count - first])

    async def _rewrite(self, segment: Segment) -> None:
        new: SegmentRepair | None = None
        at, end = segment.base_offset, segment.end_offset
        try:
            while at < end:
                found = await self._fetched(at, end, 0)
                if new is None:
                    new = self._log.repair.begin(segment, found.last_generation)
                stored = cast(StoredData, found.data)
                await _done(new.add, found.last_generation, found.first, stored.entries, stored.data)
                at = new.next_offset
            if new is not None:
                await _done(self._log.repair.finish, new)
        finally:
            if new is not None:
                new.close()

    async def _fetched(self, first: int, end: int, names_first: int) -> Fetched:
        self._answer = asyncio.get_running_loop().create_future()
        self._ask(first, end, names_first)
        async with asyncio.timeout(_ANSWER_S):
            return await self._answer


async def _done(call: Callable[..., None], *arguments: Any) -> None:
    """Run a call in a thread, and wait for its end also when this task is cancelled: what it writes to is closed
    then."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def opened(log: ReplicatedLog, *, is_damaged: bool) -> ReplicaLog:
    """Return what the protocol has to know of a log, all of which is flushed first."""
    log.sync()
    written, names = log.extent
    state = ReplicaLog.opened(
        start=log.local_start_offset,
        end=written,
        names=names,
        committed=log.end_offset,
        runs=log.generations(),
    )
    state.damaged = is_damaged
    return state


def answer(log: ReplicatedLog, generation: int, fetch: Fetch) -> Fetched | None:
    """Return what a leader has of what is asked for; empty if that is not here, or not committed; None, and say why, if
    it cannot be read. generation: of the first record. Reads the disk."""
    try:
        return _answer(log, generation, fetch)
    except (TimestoneError, OSError) as error:
        _LOGGER.error("%s cannot be read: %s", fetch.log, error)
        return None


def _answer(log: ReplicatedLog, generation: int, fetch: Fetch) -> Fetched:
    names: list[str] = []
    end, stored = fetch.first, StoredData(b"", b"")
    if fetch.first < fetch.end <= log.end_offset:
        found = log.read_stored(fetch.first, fetch.end, max_bytes=_MESSAGE_BYTES)
        end, stored = found.end, StoredData(found.entries, found.data)
    elif fetch.first == fetch.end:
        size_bytes = 0
        while size_bytes < _MESSAGE_BYTES and fetch.names_first + len(names) < log.names_count:
            name = log.topic_name(fetch.names_first + len(names))
            if not name:
                break
            names.append(name)
            size_bytes += len(name.encode())
    return Fetched(
        fetch.generation, fetch.log, fetch.first, end, generation, fetch.names_first, tuple(names), stored
    )
