"""A picture of the keys of one cluster that follows etcd, and this node's own registration.

The picture is read whole every two seconds, and a watch reports the changes in between. A watch that ends is never
resumed: the picture is read again first. So a node acts on no older view, also when etcd or the network is at fault.
A picture at an earlier revision than this node knew before it asked for it is of another past, since reads are
linearizable: nothing more is taken from such an etcd."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from timestone_cluster.errors import EtcdUnavailable, UndecodableValue, WatchEnded, WrongCluster
from timestone_cluster.etcd.client import Change, Coordinator, KeyValue, Outcome, Picture
from timestone_cluster.etcd.keys import ClusterKeys, ClusterValue, NodeValue
from timestone_cluster.shard_record import OLDER_ETCD, member_of

LEASE_S = 3
KEEP_ALIVE_S = 1.0
_READ_S = 2.0
_RETRY_S = 0.3
_LOGGER = logging.getLogger("timestone.cluster")


async def woken(event: asyncio.Event, within_s: float) -> None:
    """Wait until an event is set, or for so long, and clear it. Not by `asyncio.wait_for`: on Python 3.11 a task that
    is cancelled in the moment in which the event is set does not end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    event.clear()


def check_shard(shard: int, count: int) -> None:
    """Raise ValueError unless a cluster of so many shards has this one."""
    if not 0 <= shard < count:
        raise ValueError(f"invalid shard: expected one below {count}, got {shard}")


def cluster_of(pairs: Mapping[str, KeyValue], keys: ClusterKeys) -> ClusterValue:
    """Return the cluster of keys that were read. Raises WrongCluster, UndecodableValue."""
    pair = pairs.get(keys.cluster)
    if pair is None:
        raise WrongCluster(
            f"cluster {keys.name!r} is not in etcd: make it with `timestone cluster init`, or if etcd has lost it, "
            "start etcd from a backup, or run `timestone cluster restore`"
        )
    return ClusterValue.decode(pair.value)


def below(pairs: Mapping[str, KeyValue], prefix: str) -> dict[str, KeyValue]:
    """Return the keys with a prefix by the rest of their name."""
    return {key[len(prefix) :]: pair for key, pair in pairs.items() if key.startswith(prefix)}


class Registry:
    """Keys of a cluster as of now. For one event loop."""

    def __init__(self, etcd: Coordinator, keys: ClusterKeys, changed: Callable[[], None]) -> None:
        """changed: called after each change of the picture."""
        self.etcd = etcd
        self.keys = keys
        self.pairs: dict[str, KeyValue] = {}
        self.revision = 0
        self.is_read = False
        """Whether the keys were read whole: before that, some may be missing here."""
        self.refusal = ""
        """Why nothing is taken from etcd now; empty if it is."""
        self._restored = ""
        self._folders: dict[str, dict[str, KeyValue]] = {}
        """What `below` has found since the last change."""
        self._changed = changed
        self._wake = asyncio.Event()

    def below(self, folder: str) -> Mapping[str, KeyValue]:
        """Return the keys of a folder by the rest of their name."""
        if folder not in self._folders:
            self._folders[folder] = below(self.pairs, f"{self.keys.prefix}{folder}/")
        return self._folders[folder]

    @property
    def runs(self) -> dict[str, int]:
        """Return the registered nodes and their runs."""
        return {node: pair.created for node, pair in self.below("nodes").items()}

    @property
    def members(self) -> dict[str, int]:
        """Return the registered members and their runs: nodes, with their boot where that counts."""
        found = {}
        for node, pair in self.below("nodes").items():
            boot = ""
            with suppress(UndecodableValue):
                boot = NodeValue.decode(pair.value).boot
            found[member_of(node, boot)] = pair.created
        return found

    def address_of(self, node: str) -> str | None:
        """Return where a node can be reached; None if it is not registered, or says nothing valid."""
        value = self.value_of(node)
        return value.peer if value is not None else None

    def value_of(self, node: str) -> NodeValue | None:
        """Return what a node has registered; None for one that is away, or whose value cannot be decoded."""
        pair = self.pairs.get(self.keys.node(node))
        if pair is None:
            return None
        try:
            return NodeValue.decode(pair.value)
        except UndecodableValue as error:
            _LOGGER.error("node %s: %s", node, error)
            return None

    def shown(self, text: str) -> str:
        """Return a text for people: behind the id of each node is its name."""
        known = {**self.below("members"), **self.below("nodes")}
        for node in [one for one in known if one in text]:
            with suppress(UndecodableValue):
                text = text.replace(node, f"{node} ({NodeValue.decode(known[node].value).name})")
        return text

    async def found_cluster(self, within_s: float) -> ClusterValue:
        """Read all keys, again while etcd does not answer, and return the cluster. Raises EtcdUnavailable after so
        long, WrongCluster, UndecodableValue."""
        try:
            async with asyncio.timeout(within_s):
                await self._read_again()
        except TimeoutError:
            await self.refresh()
        return cluster_of(self.pairs, self.keys)

    async def until_free(self, name: str) -> None:
        """Wait until no node of a name is registered, since one that was killed is for a while. Raises ValueError for
        one that runs, EtcdUnavailable."""
        ends = asyncio.get_running_loop().time() + 2 * LEASE_S
        while (found := self._named(name)) is not None:
            if asyncio.get_running_loop().time() > ends:
                node, value = found
                raise ValueError(
                    f"invalid name of a new node: expected one that no running node has, got {name!r}, which node "
                    f"{node} at {value.peer} has"
                )
            await asyncio.sleep(_RETRY_S)
            await self.refresh()

    def _named(self, name: str) -> tuple[str, NodeValue] | None:
        values = ((node, self.value_of(node)) for node in self.below("nodes"))
        return next(
            ((node, value) for node, value in values if value is not None and value.name == name), None
        )

    def cluster_joined(self, cluster_id: str) -> ClusterValue | None:
        """Return the cluster that this node has joined, as of now; None if nothing may be taken from etcd, or before
        the keys were read."""
        if not self.is_read:
            return None
        found, why = None, self._restored or "the cluster in etcd is not the one that this node has joined"
        try:
            if not self._restored and (pair := self.pairs.get(self.keys.cluster)) is not None:
                found = ClusterValue.decode(pair.value)
        except UndecodableValue as error:
            why = f"the cluster in etcd cannot be read: {error}"
        if found is None or found.id != cluster_id:
            if why != self.refusal:  # this is asked several times a second
                _LOGGER.error("%s: nothing is taken from it", why)
            self.refusal = why
            return None
        if self.refusal:
            _LOGGER.warning("the cluster in etcd is the one that this node has joined again")
            self.refusal = ""
        return found

    async def refresh(self) -> None:
        """Read all keys now. Raises EtcdUnavailable."""
        known = self.revision
        picture = await self.etcd.read(self.keys.prefix)
        if picture.revision < known and not self._restored:
            self._restored = (
                f"{OLDER_ETCD}, from revision {known} to {picture.revision}, and this node has to start again"
            )
            self._changed()
        self._take(picture)

    def _take(self, picture: Picture) -> None:
        if picture.revision >= self.revision and not self._restored:
            self.pairs, self.revision, self.is_read = dict(picture.pairs), picture.revision, True
            self._folders.clear()
            self._changed()

    def note(self, outcome: Outcome) -> None:
        """Take what a transaction has found, before a watch tells it."""
        found = outcome.found
        if found is not None:
            self._apply(Change(found.key, found, found.revision))
            self._changed()

    def wake(self) -> None:
        """Have the keys read soon."""
        self._wake.set()

    async def run(self) -> None:
        """Follow etcd until cancelled."""
        await asyncio.gather(self._read_often(), self._watch())

    async def _read_often(self) -> None:
        while True:
            await self._read_again()
            await woken(self._wake, _READ_S)

    async def _read_again(self) -> None:
        """Read the keys, however long etcd takes to answer."""
        is_away = False
        while True:
            try:
                await self.refresh()
            except EtcdUnavailable as error:
                _LOGGER.log(logging.DEBUG if is_away else logging.WARNING, "etcd fails: %s", error)
                is_away = True
                await asyncio.sleep(_RETRY_S)
                continue
            if is_away:
                _LOGGER.warning("etcd answers again")
            return

    def _apply(self, change: Change) -> None:
        known = self.pairs.get(change.key)
        if self._restored or (known is not None and known.revision >= change.revision):
            return  # a picture that was read in between is newer
        self.revision = max(self.revision, change.revision)
        self._folders.clear()
        if change.found is None:
            self.pairs.pop(change.key, None)
        else:
            self.pairs[change.key] = change.found

    async def _watch(self) -> None:
        while True:
            try:
                await self.refresh()
                async for changes in self.etcd.watch(self.keys.prefix, self.revision + 1):
                    for change in changes:
                        self._apply(change)
                    if changes:
                        self._changed()
            except (EtcdUnavailable, WatchEnded) as error:
                _LOGGER.debug("etcd: %s", error)
            await asyncio.sleep(_RETRY_S)


class Registration:
    """This node's key, which exists while the process is alive and its event loop runs."""

    def __init__(
        self,
        etcd: Coordinator,
        key: str,
        member: str,
        value: NodeValue,
        registered: Callable[[int], None],
        is_joined: Callable[[], bool],
    ) -> None:
        """member: key that keeps the value when the node ends. registered: called with each new run. is_joined: whether
        etcd has the cluster of this node, which does not register elsewhere."""
        self._etcd = etcd
        self._key, self._member = key, member
        self._value = value
        self._registered, self._is_joined = registered, is_joined
        self._lease = self._created = 0
        self._written = value
        self._is_changed = asyncio.Event()

    @property
    def lease(self) -> int:
        """Return the lease of the present registration; 0 without one."""
        return self._lease

    def change(self, value: NodeValue) -> None:
        """Write another value at once, and again until it is written."""
        self._value = value
        self._is_changed.set()

    async def run(self) -> None:
        """Register, and keep registered, until cancelled."""
        while True:
            try:
                if self._lease == 0 or not await self._etcd.keep_alive(self._lease):
                    self._lease = 0
                    if self._is_joined():
                        await self._register()
                elif self._written != self._value:
                    await self._rewrite()
            except EtcdUnavailable as error:
                _LOGGER.debug("etcd: %s", error)
            await woken(self._is_changed, KEEP_ALIVE_S)

    async def _register(self) -> None:
        lease = await self._etcd.grant(LEASE_S)
        value = self._value
        await self._etcd.put(self._member, value.encode())
        # A key of an earlier process would keep its revision of creation, and this one would pass for the other.
        await self._etcd.delete(self._key)
        outcome = await self._etcd.put(self._key, value.encode(), revision=0, lease=lease)
        if outcome.is_done and outcome.found is not None:
            self._lease, self._created, self._written = lease, outcome.found.created, value
            self._registered(outcome.found.created)

    async def _rewrite(self) -> None:
        """Change the value of the registration, which stays what it is."""
        value, present = self._value, (self._key, self._created)
        if (await self._etcd.put(self._key, value.encode(), present=present, lease=self._lease)).is_done:
            self._written = value

    async def end(self) -> None:
        """Take the key away, so that others need not wait for the lease."""
        if self._lease:
            with suppress(EtcdUnavailable):
                await self._etcd.revoke(self._lease)
