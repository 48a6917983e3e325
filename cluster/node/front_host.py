"""Front of a node: serves the clients of each shard while the node leads it, and passes those of other shards on.

Partition k of each log of the front and its state are in shard k, so that the leader of a shard has all of its home.
The sockets belong to the node and stay open."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from timestone.fronts import Arrived, Correspondent, Reloadable, Replicated
from timestone_cluster.affinity import Arrivals
from timestone_cluster.errors import EtcdUnavailable
from timestone_cluster.etcd.client import Coordinator
from timestone_cluster.etcd.keys import ClusterKeys, ClusterValue, LogValue
from timestone_cluster.fronts.node_fronts import named_failure
from timestone_cluster.fronts.state_log import STATE_LOG, STATE_SETTINGS, LocalDocuments
from timestone_cluster.node.home import Around, Home, gauges
from timestone_cluster.node.relay import Relays
from timestone_cluster.node.siblings import Siblings
from timestone_cluster.operations import make_log
from timestone_cluster.shard.shard import Shard

_RELAYS = 100_000
"""Most clients that a node passes on."""


class FrontHost:
    """Front of one node. Event-loop thread only."""

    def __init__(
        self,
        front: Replicated,
        documents: LocalDocuments,
        *,
        will_grace_s: float,
        failed: Callable[[Exception], None],
        siblings: Siblings | None = None,
    ) -> None:
        """documents: of the store of this node. failed: called when the front cannot serve though this node leads.
        siblings: other workers of the same server."""
        self._front, self._documents = front, documents
        self._will_grace_s, self._failed, self._siblings = will_grace_s, failed, siblings
        self._relays: Relays | None = None
        self._around: Around | None = None
        self._homes: dict[int, Home] = {}
        self._opening: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def log_names(self) -> tuple[str, ...]:
        """Return the logs that the front needs, its state included."""
        return (*self._front.log_names, STATE_LOG)

    async def make_logs(self, etcd: Coordinator, keys: ClusterKeys, cluster: ClusterValue) -> None:
        """Make the logs that are missing. Raises ValueError for a cluster that the front cannot serve, ClusterError."""
        for name in self._front.log_names:
            await make_log(etcd, keys, name)
        await etcd.put(keys.log(STATE_LOG), LogValue().changed(STATE_SETTINGS).encode(), revision=0)

    async def make_again(self, etcd: Coordinator, keys: ClusterKeys, cluster: ClusterValue) -> None:
        """Make the logs that were deleted while this node runs, if etcd answers; tried again when it is read next."""
        with suppress(EtcdUnavailable):
            await self.make_logs(etcd, keys, cluster)

    def open(self, around: Around) -> None:
        """Open the doors, and pass clients on. Raises OSError, ValueError."""
        self._around = around
        self._homes = {
            number: Home(
                number,
                self._front,
                self._documents,
                around,
                will_grace_s=self._will_grace_s,
                failed=self._failed,
            )
            for number in range(around.division.count)
        }
        with named_failure(self._front.name):
            self._front.open_doors()
        self._relays = Relays(
            self._front.doors,
            around.hello,
            around.context,
            around.place,
            _RELAYS,
            homes=self if self._is_divided else None,
            siblings=self._siblings if self._is_divided else None,
        )
        self._pass_on()

    @property
    def _is_divided(self) -> bool:
        return len(self._homes) > 1

    async def reload(self) -> None:
        """Read the files of the front again, and use them for clients that arrive. Raises OSError, ValueError."""
        if isinstance(self._front, Reloadable):
            await self._front.reload()
        if self._relays is not None:
            self._relays.doors = self._front.doors
            if self._is_divided or not self._homes[0].is_led:
                self._relays.shut()
                self._pass_on()

    def _pass_on(self) -> None:
        if self._relays is not None:
            self._opening = asyncio.get_running_loop().create_task(self._relays.open())

    # Who is served where, for `Relays`, if there are several homes.

    def home_of(self, client_id: str) -> int:
        """Return the home of a client; for one without an id any, if possible one that this node serves."""
        assert self._around is not None
        if client_id:
            return self._around.division.of_client(client_id)
        served = [number for number, home in self._homes.items() if home.is_serving]
        return random.choice(served or list(self._homes))

    def leads(self, shard: int) -> bool:
        """Return whether this node serves the clients of a shard, or is about to."""
        return self._homes[shard].is_led

    def admit(self, client: Arrived) -> Any:
        """Return the protocol of a client that has arrived at another node, or is here; None if it cannot be served
        now."""
        home = self._homes.get(client.shard)
        return self._front.admit(client) if home is not None and home.is_serving else None

    def heard(self, shard: int, home: int, data: bytes, correspondent: Correspondent) -> None:
        """Pass a message to the front of a shard on, from that of another home."""
        if shard in self._homes and self._homes[shard].is_serving:
            self._front.heard(shard, home, data, correspondent)

    # What happens to shards.

    @property
    def is_serving(self) -> bool:
        """Return whether the front serves clients of any shard."""
        return any(home.is_serving for home in self._homes.values())

    def served(self, shard: Shard) -> None:
        """Serve clients: this node leads from now on, and its logs have all that was ever acknowledged."""
        self.lost(shard.number)
        if self._is_stopping or not self._homes[shard.number].served(shard):
            return  # `tick` tries again
        if self._relays is not None:
            if not self._is_divided:
                self._relays.shut()  # who arrives now waits for the front
            self._relays.look()

    def lost(self, shard: int) -> None:
        """Serve no more, at once: another node may lead. On return nothing can be stored or acknowledged."""
        if shard in self._homes and self._homes[shard].lost():
            self._left()

    def deleted(self, log: str) -> None:
        """End what was served from a log that the cluster has deleted; it is served again once the log was made."""
        if log in self.log_names:
            for home in self._homes.values():
                if home.lost(f"log {log} was deleted"):
                    self._left()

    def _left(self) -> None:
        if self._around is not None:
            self._around.hurry()
        if not self._is_divided:
            self._pass_on()

    def has_left(self, shard: int) -> bool:
        """Begin to serve no more, in order, for another node to lead; return whether that is done."""
        return shard not in self._homes or self._homes[shard].has_left(self._left)

    def tick(self, shards: Mapping[int, Shard]) -> None:
        """Serve where that is due; called five times a second."""
        for number, home in self._homes.items():
            shard = shards.get(number)
            if home.is_serving and len(shards) < len(self._homes):
                self.lost(number)  # a replica was moved to another node: its records would not come any more
            if shard is not None and shard.replica.is_serving and home.is_due():
                self.served(shard)
            home.look()

    def leader_changed(self) -> None:
        """Note a change of the node that leads a shard."""
        if self._relays is not None:
            self._relays.look()
        for home in self._homes.values():
            home.look()

    async def stop(self) -> None:
        """End everything. A shard that this node is elected for during the stop is not served: nodes that stop at once
        elect each other, and the last one would begin and leave again, with nothing that can be committed."""
        self._is_stopping = True
        for home in self._homes.values():
            home.stay_no_more()
        while [number for number in self._homes if not self.has_left(number)]:
            await asyncio.sleep(0.02)
        relays, self._relays = self._relays, None
        if relays is not None:
            relays.end()
        self._front.close_doors()

    def arrivals(self) -> Arrivals:
        """Return how many clients of each shard this node serves, and passes on."""
        passed_on = self._relays.counts() if self._relays is not None else {}
        serving = [number for number, home in self._homes.items() if home.is_serving]
        return Arrivals({number: self._front.client_count(number) for number in serving}, passed_on)

    def status(self) -> dict[str, Any]:
        """Return gauges by name."""
        relays = self._relays
        counts = (0, 0, 0, 0)
        if relays is not None:
            counts = len(relays.clients), relays.served_count, relays.given_count, relays.failed_count
        names = ("relays", "relayed", "given", "relays_failed")
        return {**gauges(self._homes, len(self._homes)), **dict(zip(names, counts, strict=True))}
