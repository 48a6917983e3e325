"""Between a shard and its node: what it needs of it, and records to send, which are read when they can be sent,
and those that arrive."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast

from timestone.errors import StoreClosed, TimestoneError
from timestone.replication.replicated_log import ReplicatedLog, StoredRecords
from timestone_cluster.actions import Propose, Ship
from timestone_cluster.frames import Committed, Frame, Held, Records
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.transport.links import Item
from timestone_cluster.transport.wire import StoredData, encoded

_LOGGER = logging.getLogger("timestone.cluster")
_SHIP_BYTES = 1 << 20
_SHARED_BYTES = 64 * 1024
_SAY_S = 2.0
"""How often a heartbeat says everything, though the node has heard it on the same connection."""


def now_s() -> float:
    """Return the seconds of a clock that never goes back and counts the time of a suspended machine, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Surroundings(Protocol):
    """What a shard needs of its node. Implemented by `Node`."""

    def send(self, node: str, item: Item) -> None: ...
    def beat(self, node: str, shard: int, generation: int) -> bool:
        """Have the next heartbeat say that all that was said to a node in a generation holds. Return False if the node
        takes none of that kind."""

    def propose(self, shard: int, proposal: Propose) -> None: ...
    def refresh(self) -> None: ...
    def shown(self, text: str) -> str:
        """Return a text with the names of nodes behind their ids."""

    def hurry(self) -> None:
        """Have `tick` called at once."""

    def served(self, shard: int) -> None:
        """This replica leads, and its logs have all that was ever acknowledged."""

    def lost(self, shard: int) -> None:
        """This replica leads no more. On return, nothing is acknowledged."""

    def has_left(self, shard: int) -> bool:
        """Another replica is to lead: end in order what depends on this one. Return whether that is done."""

    def deleted(self, log: str) -> None:
        """The cluster has deleted a log, of which this node has replicated some. On return, nothing uses it."""

    def failed(self, error: Exception) -> None:
        """The store cannot be relied on: the process has to end."""


class Said:
    """What a shard says to other nodes, and the last `Held` or `Committed` of each log to each on its connection."""

    def __init__(self, shard: int, around: Surroundings) -> None:
        self._shard, self._around = shard, around
        self._loop = asyncio.get_running_loop()
        self._said: dict[tuple[str, str], tuple[Held | Committed, float]] = {}
        self._encoded: tuple[Frame | None, list[bytes]] = None, []
        """The last frame, which may be for several nodes."""
        self._put_off: dict[object, Callable[[], None]] = {}

    def forget(self, node: str) -> None:
        """Have all said again on a new connection."""
        self._said = {key: said for key, said in self._said.items() if key[0] != node}

    def say(self, node: str, frame: Frame, *, is_beating: bool = False) -> None:
        """Send a frame, unless a `Beat` is enough in its place. is_beating: in a heartbeat."""
        is_repeated = False
        if isinstance(frame, Held | Committed):
            now, key = now_s(), (node, frame.log)
            said, at_s = self._said.get(key, (None, now))
            is_repeated = said == frame and now < at_s + _SAY_S
            if not is_repeated:
                self._said[key] = frame, now
        if not (is_repeated and is_beating and self._around.beat(node, self._shard, frame.generation)):
            if self._encoded[0] is not frame:
                self._encoded = frame, encoded(frame, self._shard)
            self._around.send(node, self._encoded[1])

    def say_soon(self, node: str, frame: Committed) -> None:
        """Send the newest frame of each log in the next turn of the loop."""
        self.soon((node, frame.log), functools.partial(self.say, node, frame))

    def soon(self, key: object, say: Callable[[], None]) -> None:
        """Call the last function of each key in the next turn of the loop: what clients wait for comes first."""
        if not self._put_off:
            self._loop.call_soon(self._say_put_off)
        self._put_off[key] = say

    def _say_put_off(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for say in put_off.values():
            say()


@dataclass(slots=True)
class Shared:
    """The last small message of records of a shard, which all followers get that lack the same ones."""

    of: tuple[object, ...] = ()
    message: list[bytes] = field(default_factory=list)
    end: int = 0
    names: int = 0


class Shipping:
    """A range of records as messages. See `Source`."""

    def __init__(
        self,
        ship: Ship,
        shard: int,
        generation: int,
        log: ReplicatedLog,
        state: ReplicaLog,
        shared: Shared,
        *,
        leads: Callable[[], bool],
        damaged: Callable[[str], None],
    ) -> None:
        """leads: returns whether this replica still leads the generation; nothing is sent otherwise. damaged: called
        when a record cannot be read."""
        self._ship, self._shard, self._generation = ship, shard, generation
        self._log, self._state, self._shared = log, state, shared
        self._leads, self._damaged = leads, damaged
        self._at, self._names = ship.first, ship.names

    @property
    def is_over(self) -> bool:
        """Return whether all is said, or nothing may be said any more."""
        return self._at >= self._ship.end or not self._leads()

    @property
    def is_ready(self) -> bool:
        """Return whether `now` makes no system call."""
        return self._log.holds_in_memory(self._at)

    def now(self) -> list[bytes]:
        """Return the next message. Raises TimestoneError, OSError, and can be repeated."""
        shared, of = self._shared, (self._log, self._generation, self._at, self._ship.end, self._names)
        if shared.of != of:
            message = self._message(self._read())
            if sum(map(len, message)) > _SHARED_BYTES:
                return message
            shared.of, shared.message, shared.end, shared.names = of, message, self._at, self._names
        self._at, self._names = shared.end, shared.names
        return shared.message

    async def next(self) -> list[bytes] | None:
        """Return the next message; None after the last one. Raises ConnectionError if the records are gone."""
        if self.is_over:
            return None
        at, log = self._at, self._log
        try:
            found = self._read() if log.holds_in_memory(at) else await asyncio.to_thread(self._read)
        except StoreClosed:  # deleted in the cluster
            return None
        except (TimestoneError, OSError) as error:
            if at < log.local_start_offset:  # deleted; the follower asks again on a new link
                raise ConnectionError(f"{self._ship.log} begins at {log.local_start_offset} now") from None
            _LOGGER.error("shard %d: %s cannot be shipped: %s", self._shard, self._ship.log, error)
            with suppress(TimestoneError, OSError):
                await asyncio.to_thread(log.repair.note_at, at, f"{error}")
            if self._leads():
                self._damaged(self._ship.log)
            return None
        return self._message(found) if self._leads() else None

    def _read(self) -> StoredRecords:
        return self._log.read_stored(self._at, self._ship.end, max_bytes=_SHIP_BYTES)

    def _message(self, found: StoredRecords) -> list[bytes]:
        names = upto = self._names
        if names < self._log.names_count:  # else the follower has all
            upto = max(names, found.names)
        new = tuple(self._log.topic_name(number) or "" for number in range(names, upto))
        stored = StoredData(found.entries, found.data)
        generation = self._state.generation_at(found.first)
        head = self._generation, self._ship.log, found.first, found.end, generation
        frame = Records(*head, names, new, stored, found.begins_segment)
        self._at, self._names = found.end, upto
        return encoded(frame, self._shard)


def append(log: ReplicatedLog, records: Records) -> None:
    """Write records as a leader ships them. Raises ValueError for others than those that come next, and as
    `ReplicatedLog.append_replica`."""
    stored = cast(StoredData, records.data)
    log.append_replica(
        records.last_generation,
        records.first,
        stored.entries,
        stored.data,
        records.names_first,
        records.names,
        begins_segment=records.begins_segment,
    )
    if log.extent[0] != records.end:
        raise ValueError(f"invalid records: expected an end at {records.end}, got {log.extent[0]}")
