"""Home of clients: the front for those of one shard, from when this node leads it until it leads no more."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from timestone.errors import HistoryUnavailable, TimestoneError
from timestone.format.names import log_folder
from timestone.fronts import Appendable, Documents, Replicated
from timestone.log import Log
from timestone.replication.replicated_log import ReplicatedLog
from timestone_cluster.division import Division
from timestone_cluster.fronts.state_log import STATE_LOG, LocalDocuments, StateLog
from timestone_cluster.node.forwarding import Stream
from timestone_cluster.node.relay import Place
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard.shipping import now_s
from timestone_cluster.transport.wire import Hello

_LOGGER = logging.getLogger("timestone.cluster")
_LEAVE_S = 3.0
"""Longest time for a front to settle and store what it has, before it is ended as by a kill."""
_AGAIN_S = 3.0
"""After this time a front that has left serves again, if no other node leads."""
_STAY_S = 10.0
"""A front that has left in vain serves for so long before it does so again."""
_NOTE_TIME_S = 30
_LOOK_S = 0.1
_SAY_S = 10.0


class Around(NamedTuple):
    """What the front of a node needs of the cluster."""

    division: Division
    hello: Hello
    """First message of a client of the cluster."""
    context: ssl.SSLContext | None
    """For connections to nodes."""
    place: Callable[[int], Place | None]
    """Returns where a shard is led, as far as this node knows."""
    shards: Mapping[int, Shard]
    """Those of which this node has a replica."""
    hurry: Callable[[], None]
    """Called when the front has left: the shard can be handed over."""


class Home:
    """Front for the clients of one shard. Event-loop thread only."""

    def __init__(
        self,
        number: int,
        front: Replicated,
        documents: LocalDocuments,
        around: Around,
        *,
        will_grace_s: float,
        failed: Callable[[Exception], None],
    ) -> None:
        """Arguments as `FrontHost` has them."""
        self.number = number
        self._front, self._documents, self._around = front, documents, around
        self._will_grace_s, self._failed = will_grace_s, failed
        self._state: StateLog | None = None
        self._partitions: _HomePartitions | None = None
        self._serving: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._left_s = self._stay_s = 0.0
        self.is_serving = False

    @property
    def is_led(self) -> bool:
        """Return whether this node leads the shard and serves, or is about to."""
        return self._state is not None

    @property
    def forwarded_count(self) -> int:
        """Return how many records of it were appended to other shards."""
        return (
            sum(one.count for one in self._partitions.streams.values()) if self._partitions is not None else 0
        )

    @property
    def label(self) -> str:
        """Return what it serves, for people."""
        of_shard = f" of shard {self.number}" if self._around.division.count > 1 else ""
        return f"{self._front.name} serves {{}}clients{of_shard}{{}}"

    def served(self, shard: Shard) -> bool:
        """Serve clients: this node leads from now on, and its logs have all that was ever acknowledged. Return False if
        a log is missing."""
        self.lost()
        folders = [log_folder(name, self.number) for name in (*self._front.log_names, STATE_LOG)]
        log = shard.log(folders[-1])
        if log is None or any(shard.log(folder) is None for folder in folders):
            return False
        if self._left_s:  # in vain
            self._left_s, self._stay_s = 0.0, now_s() + _STAY_S
        self._state = StateLog(log, self._documents)
        self._serving = asyncio.get_running_loop().create_task(self._serve(self._state, shard))
        return True

    async def _serve(self, state: StateLog, shard: Shard) -> None:
        begun_s = now_s()
        try:
            await asyncio.to_thread(state.read)
            if self._around.division.count > 1:
                generation = shard.replica.generation
                self._partitions = await _HomePartitions.ready(
                    self.number, generation, self._front, self._around, self
                )
            while not await self._begins(state):
                await asyncio.sleep(_AGAIN_S)
        except (TimestoneError, OSError, ValueError) as error:
            if self._state is state:  # otherwise another node leads by now
                self._failed(error)
            return
        self.is_serving = True
        _LOGGER.info(self.label.format("", f", {now_s() - begun_s:.1f} s after this node leads"))
        while True:
            await asyncio.sleep(_NOTE_TIME_S)
            with suppress(TimestoneError, OSError):
                await asyncio.to_thread(state.note_time, _NOTE_TIME_S * 1_000_000)

    async def _begins(self, state: StateLog) -> bool:
        """Begin to serve; return False where only a bucket has what sessions continue from, and does not give it."""
        try:
            await self._front.lead(
                state, state.clock, will_grace_s=self._will_grace_s, partitions=self._partitions
            )
        except HistoryUnavailable as error:
            _LOGGER.warning("shard %d: %s waits: %s", self.number, self._front.name, error)
            self._front.lose(self.number)
            return False
        return True

    def lost(self, why: str = "this node leads no more") -> bool:
        """Serve no more, at once: another node may lead. On return nothing can be stored or acknowledged. Return
        whether it was led. why: for people."""
        if self._state is None:
            return False
        self._state.close()
        was_serving = self.is_serving
        self._ended()
        self._front.lose(self.number)
        if was_serving:
            _LOGGER.warning(self.label.format("no ", f" any more: {why}"))
        return True

    def _ended(self) -> None:
        self._state, self.is_serving = None, False
        if self._partitions is not None:
            self._partitions.close()
            self._partitions = None
        for task in (self._serving, self._leaving):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._serving = self._leaving = None

    def has_left(self, done: Callable[[], None]) -> bool:
        """Begin to serve no more, in order, for another node to lead; return whether that is done. done: called when it
        is."""
        if self._state is None:
            return True
        if self._leaving is None and now_s() >= self._stay_s:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(self._state, done))
        return False

    async def _leave(self, state: StateLog, done: Callable[[], None]) -> None:
        self.is_serving = False
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._front.leave(self.number)
        except TimeoutError:
            self._front.lose(self.number)
        state.close()
        self._ended()
        self._left_s = now_s()
        done()
        _LOGGER.info(self.label.format("no ", " any more: this node hands over"))

    def is_due(self) -> bool:
        """Return whether it is to serve, if this node leads."""
        return self._state is None and now_s() >= self._left_s + _AGAIN_S

    def stay_no_more(self) -> None:
        """Leave whenever asked: this node stops."""
        self._stay_s = 0.0

    def look(self) -> None:
        """Note that time has passed, or another node leads a shard."""
        if self._partitions is not None:
            for stream in self._partitions.streams.values():
                stream.look()
                stream.tick()


class _HomePartitions:
    """The other shards, as the front of a home sees them: see `timestone.fronts.Partitions`."""

    def __init__(
        self,
        home: int,
        generation: int,
        front: Replicated,
        around: Around,
        logs: Mapping[int, list[ReplicatedLog]],
    ) -> None:
        self.home, self.count = home, around.division.count
        self.of_topic, self.of_filter = around.division.of_topic, around.division.of_filter
        self.of_client = around.division.of_client
        self._logs = logs
        self._answered: Callable[[int, bytes], None] = lambda shard, data: None
        self.streams = {
            shard: Stream(
                home,
                generation,
                shard,
                logs[shard],
                hello=around.hello,
                context=around.context,
                place=lambda shard=shard: around.place(shard),  # type: ignore[misc]
                answered=lambda shard, data: self._answered(shard, data),
            )
            for shard in range(self.count)
            if shard != home
        }
        self._forwarded: dict[str, Appendable] = {}
        for stream in self.streams.values():
            self._forwarded |= stream.logs

    @classmethod
    async def ready(
        cls, home: int, generation: int, front: Replicated, around: Around, owner: Home
    ) -> "_HomePartitions":
        """Return them once this node has a copy of all that earlier leaders of the home have appended to them: what
        they have delivered, and which publishes at QoS 2 they have taken."""
        said_s = now_s()
        names = (*front.log_names, STATE_LOG)
        while True:
            logs = {shard: _replicas(around, shard, names) for shard in range(around.division.count)}
            missing = [shard for shard, found in logs.items() if found is None]
            if not missing:
                break
            said_s = _said(said_s, f"shard {home}: waits: this node has no replica of the shards {missing}")
            await asyncio.sleep(_LOOK_S)
        known = {shard: found for shard, found in logs.items() if found is not None}
        made = cls(home, generation, front, around, known)
        owner._partitions = made
        for stream in made.streams.values():
            stream.start()
        while waiting := [shard for shard, stream in made.streams.items() if not stream.opened.is_set()]:
            said_s = _said(said_s, f"shard {home}: waits for the leaders of the shards {waiting}")
            await asyncio.sleep(_LOOK_S / 10)
        return made

    def appendable(self, log: Log) -> Appendable:
        return self._forwarded[log.key]

    def documents(self, shard: int) -> Documents:
        state = StateLog(self._logs[shard][-1], _NoDocuments())
        state.read()
        return state

    def connection(self, shard: int) -> object | None:
        return self.streams[shard].connection

    def tell(self, shard: int, data: bytes) -> None:
        self.streams[shard].tell(data)

    def listen(self, answered: Callable[[int, bytes], None]) -> None:
        self._answered = answered

    @property
    def lags(self) -> bool:
        return any(stream.lags for stream in self.streams.values())

    def close(self) -> None:
        """Forward nothing any more."""
        for stream in self.streams.values():
            stream.close()


class _NoDocuments:
    """Documents of a node that concern another one."""

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None: ...

    def items(self, space: str) -> dict[str, bytes]:
        return {}


def _replicas(around: Around, shard: int, names: tuple[str, ...]) -> list[ReplicatedLog] | None:
    held = around.shards.get(shard)
    logs = [held.log(log_folder(name, shard)) for name in names] if held is not None else [None]
    found = [log for log in logs if log is not None]
    return found if len(found) == len(names) else None


def _said(said_s: float, message: str) -> float:
    """Log now and then why nothing is served yet."""
    if now_s() < said_s + _SAY_S:
        return said_s
    _LOGGER.warning(message)
    return now_s()


def gauges(homes: Mapping[int, Home], count: int) -> dict[str, Any]:
    """Return what the homes of a node do, by name."""
    serving = sum(home.is_serving for home in homes.values())
    found = {"serves": serving}
    if count > 1:
        found["forwarded"] = sum(home.forwarded_count for home in homes.values())
    return found
