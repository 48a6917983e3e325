"""Shared subscriptions in logs that other nodes of a cluster lead: the group is there, and assigns offsets to members
here, who read the records in the copy of this node.

A home asks for records when a member waits for some, and reports what its members acknowledge, cannot take, or leave
behind. It holds nothing back: what no member takes at once goes to those of other homes. Messages may be lost with
their connection, so the first one on each says what is open here (`Account.whole`), and the group corrects its own
view."""

import functools
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mqtt_front.feeds.shared_group import SharedGroup, Taker
from mqtt_front.runtime.loop import Loop
from timestone.disk.json_document import integer, integers, json_object
from timestone.fronts import Partitions
from timestone.log import Log

_RECENT_S = 10.0
"""So long a home remembers acknowledgements: the group saves what it knows every second."""
_RECENT_COUNT = 100_000
_LOG = logging.getLogger("timestone.mqtt")


class Account:
    """What the members of this home have of one group elsewhere. It outlives its group here until all is
    acknowledged."""

    def __init__(
        self, log: Log, topic_filter: str, start: int, owner: str, changed: Callable[[], None]
    ) -> None:
        """start: where the group begins if it is new. changed: called when there is something to send."""
        self.log, self._filter, self._start, self._owner = log, topic_filter, start, owner
        self._changed = changed
        self.group: RemoteGroup | None = None
        self.held: set[int] = set()
        """Open offsets."""
        self.asked = 0
        """Requests without an answer."""
        self._asks: list[int] = []
        self._acknowledged: list[int] = []
        self._returned: list[int] = []
        self._recent: deque[tuple[float, list[int]]] = deque()
        self._recent_count = 0

    def ask(self, room: int, waiting_count: int) -> None:
        """Ask for records, unless there is a request for each member that waits."""
        if self.asked < waiting_count:
            self.asked += 1
            self._asks.append(room)
            self._changed()

    def acknowledged(self, offsets: Iterable[int]) -> None:
        """Note that offsets need no delivery any more."""
        done = list(self.held.intersection(offsets))
        if not done:
            return
        self.held.difference_update(done)
        self._acknowledged += done
        self._recent.append((time.monotonic(), done))
        self._recent_count += len(done)
        while self._recent_count > _RECENT_COUNT or self._recent[0][0] < time.monotonic() - _RECENT_S:
            self._recent_count -= len(self._recent.popleft()[1])
            if not self._recent:
                break
        self._changed()

    def returned(self, offsets: Iterable[int]) -> None:
        """Note that offsets are for members of other homes."""
        left = list(self.held.intersection(offsets))
        if left:
            self.held.difference_update(left)
            self._returned += left
            self._changed()

    def noticed(self) -> None:
        """Note that members came or left. With the last one that is connected its requests end."""
        if self.group is None or not self.group.connected_count:
            self.asked, self._asks = 0, []
        self._changed()

    @property
    def is_over(self) -> bool:
        """Return whether no member is left, and nothing open."""
        return self.group is None and not self.held

    def whole(self) -> dict[str, Any]:
        """Return all of it, and forget what was to be sent."""
        self._forget()
        rooms = self.group.waiting_rooms if self.group is not None else []
        self.asked = len(rooms)
        done = [offset for _, offsets in self._recent for offset in offsets]
        return {**self._names(), "asks": rooms, "held": sorted(self.held), "done": sorted(done)}

    def news(self) -> dict[str, Any]:
        """Return what has changed since the last message."""
        found = {**self._names(), "asks": self._asks, "done": self._acknowledged, "returned": self._returned}
        self._forget()
        return found | ({"is_over": True} if self.is_over else {})

    def _names(self) -> dict[str, Any]:
        connected = self.group.connected_count if self.group is not None else 0
        names = {"log": self.log.name, "filter": self._filter, "start": self._start, "owner": self._owner}
        return {**names, "connected": connected}

    def _forget(self) -> None:
        self._asks, self._acknowledged, self._returned = [], [], []


class RemoteGroup(SharedGroup):
    """Members of this home in a group elsewhere. `seen` is where that begins, and only members are saved."""

    has_place = False

    def __init__(
        self,
        log: Log,
        topic_filter: str,
        pattern: str,
        start: int,
        *,
        owner: str,
        changed: set[SharedGroup],
        branches: "Branches",
    ) -> None:
        super().__init__(log, topic_filter, pattern, start, durable=False, owner=owner, changed=changed)
        self._account = account = branches.account(self)
        account.group, self._open = self, account.held
        self._waker.on_wake = lambda reader, offset: branches.soon(self.stir)
        self._again: set[int] = set()
        """Offsets that another member may have had."""
        self._woken: set[Taker] = set()
        """Members that were woken, and have not looked yet."""

    def touch(self) -> None:
        """Save nothing: what is open is known where the group is."""

    def join(self, member: str) -> None:
        super().join(member)
        self._members_changed()

    def leave(self, member: str) -> None:
        super().leave(member)
        self._members_changed()

    def rename(self, member: str, new: str) -> None:
        super().rename(member, new)
        self._members_changed()

    def _members_changed(self) -> None:
        self._changed.add(self)
        self._account.noticed()

    def restore(self, *state: Any) -> None:
        """Continue from an earlier process: what its members had is assigned again, to anyone."""

    def connected(self, feed: Any) -> None:
        super().connected(feed)
        self._account.noticed()

    def disconnected(self, feed: Any, returned: Iterable[int], held: Iterable[int]) -> None:
        super().disconnected(feed, returned, ())
        self._account.noticed()
        self._give_up()

    @property
    def open_offsets(self) -> frozenset[int]:
        return frozenset()

    # Assignment.

    @property
    def waiting_rooms(self) -> list[int]:
        """Return how many records each waiting member can take."""
        return [max(1, feed.room) for feed in list(self._idle)]

    def given(self, offsets: Iterable[int], *, again: bool) -> None:
        """Take offsets that the group has assigned. again: another member may have had them."""
        offsets = list(offsets)
        self._open.update(offsets)
        if again:
            self._again.update(offsets)
        self._returned = sorted({*self._returned, *offsets})
        self.stir()
        self._give_up()

    def _give_up(self) -> None:
        """Give back what no member of this home takes now."""
        if self._returned and not self._idle and self.busy is None and not self._woken:
            returned, self._returned = self._returned, []
            self._again.difference_update(returned)
            self._account.returned(returned)

    @property
    def backlog(self) -> int:
        end = self.log.end_offset
        return sum(offset < end for offset in self._returned)

    @property
    def next_offset(self) -> int:
        return next(iter(self.next_returned()), self.seen)

    def may_read(self, feed: Taker) -> bool:
        self._woken.discard(feed)
        return super().may_read(feed) and self.backlog > 0

    def next_returned(self) -> list[int]:
        """Return the offsets to deliver next, a share for each woken member: those that another member may have had
        first, by themselves."""
        end = self.log.end_offset
        here = [offset for offset in self._returned if offset < end]
        here = [offset for offset in here if offset in self._again] or here
        return here[: -(-len(here) // (1 + len(self._woken)))]

    def repeats(self, returned: list[int]) -> bool:
        return bool(self._again.intersection(returned[:1]))

    def sent(self, offsets: Iterable[int]) -> None:
        """Note offsets sent to a member: they are open since they were assigned to this home."""

    def acknowledged(self, offsets: Iterable[int]) -> None:
        offsets = list(offsets)
        self._again.difference_update(offsets)
        self._account.acknowledged(offsets)

    def _give_back(self, offsets: Iterable[int]) -> None:
        self._again.update(offsets := self._open.intersection(offsets))
        super()._give_back(offsets)
        self._give_up()

    def passed(self, feed: Taker) -> None:
        self._woken.discard(feed)
        super().passed(feed)
        self._give_up()

    def rest(self, feed: Taker) -> None:
        self._woken.discard(feed)
        super().rest(feed)

    def _wake(self, feed: Taker) -> None:
        self._woken.add(feed)
        super()._wake(feed)

    # Waiting.

    def park(self, feed: Taker) -> bool:
        if feed.room <= 0:
            return False  # it waits for its client instead
        if not super().park(feed):
            return False
        self._account.ask(feed.room, len(self._idle))
        return True

    def _arm(self) -> bool:
        if self.backlog:
            return False
        if not self._returned:
            return True
        self._waker.offset = max(self._returned[0], self.log.start_offset)
        return self._waker.park()

    def close(self) -> None:
        super().close()
        if self._account.group is self:
            self._account.group = None
        self._account.noticed()


class _Link(NamedTuple):
    """Connection to the home of the groups of a shard, as far as it is agreed with that what is open here."""

    connection: object
    number: int


class Branches:
    """All groups elsewhere that have members of this home. Event-loop thread only, once it is open."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._accounts: dict[tuple[int, str, str], Account] = {}
        self._changed: dict[int, dict[Account, None]] = {}
        """By shard."""
        self._asked: dict[int, _Link] = {}
        """By shard: where the first message was sent."""
        self._agreed: dict[int, _Link] = {}
        """By shard: where it was answered."""
        self._numbers = itertools.count(1)
        self._loop: Loop | None = None

    def is_elsewhere(self, log: Log) -> bool:
        """Return whether the groups of a log are at another home."""
        return log.partition != self._partitions.home

    def soon(self, call: Callable[[], None]) -> None:
        """Call a function in the event loop. Any thread may call."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(call)
            except RuntimeError:  # it is closed
                return

    def open(self, loop: Loop) -> None:
        """Exchange messages from now on."""
        self._loop = loop
        self._partitions.listen(self._heard)
        self.tick()

    def account(self, group: RemoteGroup) -> Account:
        """Return the account of a group, which may be that of an earlier one."""
        shard = group.log.partition
        key = shard, group.log.name, group.topic_filter
        if key not in self._accounts:
            changed = functools.partial(self._note, shard, key)
            self._accounts[key] = Account(group.log, group.topic_filter, group.seen, group.owner, changed)
        return self._accounts[key]

    def _note(self, shard: int, key: tuple[int, str, str]) -> None:
        changed = self._changed.setdefault(shard, {})
        if not changed and self._loop is not None:
            self._loop.call_soon(self._flush, shard)
        if (account := self._accounts.get(key)) is not None:
            changed[account] = None

    def tick(self) -> None:
        """Agree with the homes on other ends of new connections, until they answer."""
        for shard in range(self._partitions.count):
            if shard != self._partitions.home:
                self._agree(shard)

    def _agree(self, shard: int) -> None:
        connection, agreed = self._partitions.connection(shard), self._agreed.get(shard)
        if connection is None or (agreed is not None and agreed.connection is connection):
            return
        link = self._asked[shard] = _Link(connection, next(self._numbers))
        self._agreed.pop(shard, None)
        self._changed.pop(shard, None)
        self._drop_ended(shard)
        wholes = [account.whole() for key, account in self._accounts.items() if key[0] == shard]
        self._tell(shard, link, {"is_first": True, "groups": wholes})

    def _flush(self, shard: int) -> None:
        link = self._agreed.get(shard)
        if link is None or link.connection is not self._partitions.connection(shard):
            return  # until it is agreed again
        if changed := self._changed.pop(shard, None):
            self._tell(shard, link, {"groups": [account.news() for account in changed]})
        self._drop_ended(shard)

    def _drop_ended(self, shard: int) -> None:
        for key in [key for key, one in self._accounts.items() if key[0] == shard and one.is_over]:
            del self._accounts[key]

    def _tell(self, shard: int, link: _Link, message: dict[str, Any]) -> None:
        message["number"] = link.number
        self._partitions.tell(shard, json.dumps(message, separators=(",", ":")).encode())

    def _heard(self, shard: int, data: bytes) -> None:
        try:
            message = json_object(data)
            link = self._asked.get(shard)
            if link is None or integer(message["number"]) != link.number:
                return  # of before
            if self._agreed.get(shard) is not link:
                self._agreed[shard] = link
                self._flush(shard)
            if "offsets" in message:
                key = shard, str(message["log"]), str(message["filter"])
                self._given(key, integers(message["offsets"]), again=bool(message["again"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _LOG.error("shared subscriptions of shard %d: message ignored: %r", shard, error)

    def _given(self, key: tuple[int, str, str], offsets: list[int], *, again: bool) -> None:
        account = self._accounts.get(key)
        if account is None:
            return  # it has ended, and the group will know
        account.asked = max(0, account.asked - 1)
        if account.group is not None:
            account.group.given(offsets, again=again)
        else:
            account.held.update(offsets)
            account.returned(offsets)
