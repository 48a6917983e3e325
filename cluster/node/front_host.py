"""Front of a node: serves clients while the node leads, and passes them on while another one does.

All logs of the front and its state are in one shard, so that one node has all of it. Its sockets stay open."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from timestone.errors import TimestoneError
from timestone.format.names import log_folder
from timestone.fronts import Reloadable, Replicated
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys, ClusterValue, LogValue
from timestone_cluster.node.relay import Relays
from timestone_cluster.node.shard import Shard, now_s
from timestone_cluster.node.state_log import STATE_LOG, STATE_SETTINGS, LocalDocuments, StateLog
from timestone_cluster.operations import make_log

_LOGGER = logging.getLogger("timestone.cluster")
SHARD = 0
_LEAVE_S = 3.0
"""Longest time for a front to settle and store what it has, before it is ended as by a kill."""
_AGAIN_S = 3.0
"""After this time a front that has left serves again, if no other node leads."""
_STAY_S = 10.0
"""A front that has left in vain serves for so long before it does so again."""
_NOTE_TIME_S = 30


class FrontHost:
    """Front of one node. Event-loop thread only."""

    def __init__(
        self,
        front: Replicated,
        documents: LocalDocuments,
        *,
        will_grace_s: float,
        failed: Callable[[Exception], None],
    ) -> None:
        """documents: of the store of this node. failed: called when the front cannot serve though this node leads."""
        self._front, self._documents = front, documents
        self._will_grace_s, self._failed = will_grace_s, failed
        self._relays: Relays | None = None
        self._state: StateLog | None = None
        self._serving: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._left_s = self._stay_s = 0.0
        self.is_serving = False

    @property
    def log_names(self) -> tuple[str, ...]:
        """Return the logs that the front needs, its state included."""
        return (*self._front.log_names, STATE_LOG)

    async def make_logs(self, etcd: Coordinator, keys: ClusterKeys, cluster: ClusterValue) -> None:
        """Make the logs that are missing. Raises ValueError for a cluster that the front cannot serve, ClusterError."""
        if cluster.shards != 1:
            raise ValueError(
                f"invalid number of shards for {self._front.name}: expected a cluster of 1, "
                f"got {keys.name} with {cluster.shards}"
            )
        for name in self._front.log_names:
            await make_log(etcd, keys, name)
        await etcd.put(keys.log(STATE_LOG), LogValue().changed(STATE_SETTINGS).encode(), revision=0)

    def open(self, relays: Callable[[Any], Relays]) -> None:
        """Open the doors, and pass clients on. relays: makes the relays of some doors. Raises OSError, ValueError."""
        self._front.open_doors()
        self._relays = relays(self._front.doors)
        self._pass_on()

    async def reload(self) -> None:
        """Read the files of the front again, and use them for clients that arrive. Raises OSError, ValueError."""
        if isinstance(self._front, Reloadable):
            await self._front.reload()
        if self._relays is not None:
            self._relays.doors = self._front.doors
            if self._state is None:
                self._relays.shut()
                self._pass_on()

    def _pass_on(self) -> None:
        if self._relays is not None:
            self._opening = asyncio.get_running_loop().create_task(self._relays.open())

    def admit(self, door: int, address: tuple[str, int], user: str | None, keep: object) -> Any:
        """Return the protocol of a client that has arrived at another node; None if it cannot be served now."""
        return self._front.admit(door, address, user, keep) if self.is_serving else None

    # What happens to the shard.

    def served(self, shard: Shard) -> None:
        """Serve clients: this node leads from now on, and its logs have all that was ever acknowledged."""
        self.lost()
        folders = [log_folder(name, SHARD) for name in self.log_names]
        log = shard.log(folders[-1])
        if log is None or any(shard.log(folder) is None for folder in folders):
            return  # `tick` tries again
        if self._left_s:  # in vain
            self._left_s, self._stay_s = 0.0, now_s() + _STAY_S
        if self._relays is not None:
            self._relays.shut()  # who arrives now waits for the front
            self._relays.look()
        self._state = StateLog(log, self._documents)
        self._serving = asyncio.get_running_loop().create_task(self._serve(self._state))

    async def _serve(self, state: StateLog) -> None:
        begun_s = now_s()
        try:
            await asyncio.to_thread(state.read)
            await self._front.lead(state, state.clock, will_grace_s=self._will_grace_s)
        except (TimestoneError, OSError, ValueError) as error:
            if self._state is state:  # otherwise another node leads by now
                self._failed(error)
            return
        self.is_serving = True
        _LOGGER.info("%s serves clients, %.1f s after this node leads", self._front.name, now_s() - begun_s)
        while True:
            await asyncio.sleep(_NOTE_TIME_S)
            with suppress(TimestoneError, OSError):
                await asyncio.to_thread(state.note_time, _NOTE_TIME_S * 1_000_000)

    def lost(self) -> None:
        """Serve no more, at once: another node may lead. On return nothing can be stored or acknowledged."""
        if self._state is None:
            return
        self._state.close()
        was_serving = self.is_serving
        self._ended()
        self._front.lose()
        self._pass_on()
        if was_serving:
            _LOGGER.warning("%s serves no clients any more: this node leads no more", self._front.name)

    def _ended(self) -> None:
        self._state, self.is_serving = None, False
        for task in (self._serving, self._leaving):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._serving = self._leaving = None

    def has_left(self) -> bool:
        """Begin to serve no more, in order, for another node to lead; return whether that is done."""
        if self._state is None:
            return True
        if self._leaving is None and now_s() >= self._stay_s:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(self._state))
        return False

    async def _leave(self, state: StateLog) -> None:
        self.is_serving = False
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._front.leave()
        except TimeoutError:
            self._front.lose()
        state.close()
        self._ended()
        self._left_s = now_s()
        self._pass_on()
        _LOGGER.info("%s serves no clients any more: this node hands over", self._front.name)

    def tick(self, shard: Shard | None) -> None:
        """Serve if that is due; called five times a second."""
        is_led_here = shard is not None and shard.replica.is_serving
        if is_led_here and self._state is None and now_s() >= self._left_s + _AGAIN_S:
            assert shard is not None
            self.served(shard)

    def leader_changed(self) -> None:
        """Note a change of the node that leads."""
        if self._relays is not None:
            self._relays.look()

    async def stop(self) -> None:
        """End everything."""
        self._stay_s = 0.0
        while not self.has_left():
            await asyncio.sleep(0.02)
        relays, self._relays = self._relays, None
        if relays is not None:
            relays.end()
        self._front.close_doors()

    def status(self) -> dict[str, Any]:
        """Return gauges by name."""
        relays = self._relays
        counts = (len(relays.clients), relays.served_count, relays.failed_count) if relays else (0, 0, 0)
        names = ("relays", "relayed", "relays_failed")
        return {"serves": int(self.is_serving), **dict(zip(names, counts, strict=True))}
