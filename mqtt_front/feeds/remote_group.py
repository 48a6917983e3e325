"""Shared subscriptions in logs that other nodes of a cluster lead: the group is there, and assigns offsets to members
here, who read the records in the copy of this node.

A home asks for records when a member waits for some, and reports what its members acknowledge, cannot take, or leave
behind. It holds nothing back: what no member takes at once goes to those of other homes. Messages may be lost with
their connection, so the first one on each says what is open here (`Account.whole`), and the group corrects its own
view.

While a home has members at QoS 2, all that it gets is to be delivered exactly once: the group has saved that it is
here, and what is done is saved here before the group hears of it, and until the group has saved that.

Homes of two versions: a field that is not known is ignored, and one that a later version adds may be missing. After a
message that cannot be understood all the same, both sides begin with a first one, so that nothing in it is lost."""

import functools
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mqtt_front.feeds.shared_group import Member, SavedGroup, SharedGroup, Taker
from mqtt_front.runtime.loop import Loop
from timestone.disk.json_document import integer, integers, json_object
from timestone.fronts import Partitions
from timestone.log import Log

_LOG = logging.getLogger("timestone.mqtt")


@dataclass(slots=True, eq=False)
class Account:
    """What the members of this home have of one group elsewhere. It outlives its group here until all is
    acknowledged."""

    log: Log
    topic_filter: str
    start: int
    """Where the group begins if it is new."""
    owner: str
    changed: Callable[[], None]
    """Called when there is something to send."""
    unsure_below: int
    """Members, also of an earlier account, may have had what lies below and is in nothing that the group has saved."""
    group: "RemoteGroup | None" = None
    held: set[int] = field(default_factory=set)
    """Open offsets."""
    once: set[int] = field(default_factory=set)
    """Those of them that are to be delivered exactly once."""
    done: set[int] = field(default_factory=set)
    """Those that were, until the group has saved that. Saved with the group here."""
    asked: int = 0
    """Requests without an answer."""
    _unsaved: set[int] = field(default_factory=set)
    """Those of `done` that are not saved: for the group they are open."""
    _asks: list[int] = field(default_factory=list)
    _acknowledged: list[int] = field(default_factory=list)
    _returned: list[int] = field(default_factory=list)
    _again: list[int] = field(default_factory=list)
    """Returned offsets that a member may have had."""
    _told: deque[tuple[int, list[int]]] = field(default_factory=deque)
    """Acknowledged offsets by the number of their message, until the group has saved them."""

    def ask(self, room: int, waiting_count: int) -> None:
        """Ask for records, unless there is a request for each member that waits."""
        if self.asked < waiting_count:
            self.asked += 1
            self._asks.append(room)
            self.changed()

    def acknowledged(self, offsets: Iterable[int]) -> bool:
        """Note that offsets need no delivery any more. Return whether that has to be saved here first."""
        done = self.held.intersection(offsets)
        once = done & self.once
        self.held -= done
        self.once -= once
        self.done |= once
        self._unsaved |= once
        if done != once:
            self._acknowledged += done - once
            self.changed()
        return bool(once)

    def saving(self) -> Callable[[], None]:
        """Return what to call when what is done now is saved."""
        unsaved = self._unsaved.copy()

        def saved() -> None:
            if found := unsaved & self._unsaved:
                self._unsaved -= found
                self._acknowledged += found
                self.changed()

        return saved

    def confirmed(self, number: int) -> None:
        """Note that the group has saved what the messages up to this one say."""
        while self._told and self._told[0][0] <= number:
            done = self._told.popleft()[1]
            if self.group is not None and not self.done.isdisjoint(done):
                self.done.difference_update(done)
                self.group.note()
        if not self._told:
            self.unsure_below = 0

    def returned(self, offsets: Iterable[int], again: Collection[int]) -> None:
        """Note that offsets are for members of other homes. again: those that a member may have had."""
        left = self.held.intersection(offsets)
        if left:
            self.held -= left
            self.once -= left
            self._returned += left
            self._again += left.intersection(again)
            self.changed()

    def noticed(self) -> None:
        """Note that members came or left. With the last one that is connected its requests end."""
        if self.group is None or not self.group.connected_count:
            self.asked, self._asks = 0, []
        self.changed()

    @property
    def is_over(self) -> bool:
        """Return whether no member is left, and nothing open."""
        return self.group is None and not self.held

    def whole(self, number: int) -> dict[str, Any]:
        """Return all of it as of a message, and forget what was to be sent."""
        done = [*self._acknowledged, *(offset for _, offsets in self._told for offset in offsets)]
        self._told.clear()
        self._say(number, done)
        rooms = self.group.waiting_rooms if self.group is not None else []
        self.asked = len(rooms)
        found = {
            **self._names(),
            "asks": rooms,
            "held": sorted(self.held | self._unsaved),
            "done": sorted(done),
        }
        return found | {"unsure_below": self.unsure_below}

    def news(self, number: int) -> dict[str, Any]:
        """Return what has changed since the last message."""
        found = {**self._names(), "asks": self._asks, "done": self._acknowledged, "returned": self._returned}
        found["again"] = self._again
        self._say(number, self._acknowledged)
        return found | ({"is_over": True} if self.is_over else {})

    def _names(self) -> dict[str, Any]:
        group = self.group
        names = {"log": self.log.name, "filter": self.topic_filter, "start": self.start, "owner": self.owner}
        count, is_once = (0, False) if group is None else (group.connected_count, group.is_once)
        return {**names, "connected": count, "once": is_once}

    def _say(self, number: int, done: list[int]) -> None:
        self._told.append((number, done))
        self.unsure_below = max([self.unsure_below, *(offset + 1 for offset in self._again)])
        self._asks, self._acknowledged, self._returned, self._again = [], [], [], []


class RemoteGroup(SharedGroup):
    """Members of this home in a group elsewhere. `seen` is where that begins. Saved are its members, and what is to be
    delivered exactly once: what sessions have in flight, and what is done."""

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
        self.is_once = False
        """Whether a member is granted QoS 2, or was."""
        self._woken: set[Taker] = set()
        """Members that were woken, and have not looked yet."""

    def touch(self) -> None:
        """Save nothing: what is open is known where the group is."""

    def note(self) -> None:
        """Note that there is something to save all the same."""
        self._changed.add(self)

    @property
    def is_settled(self) -> bool:
        return not self._account.once and not self._account.done

    @property
    def done(self) -> Collection[int]:
        return self._account.done

    def saving(self) -> Callable[[], None]:
        """Return what to call when the group is saved as it is now."""
        return self._account.saving()

    def _members_changed(self) -> None:
        self.note()
        self._account.noticed()

    def restore(self, saved: SavedGroup) -> None:
        """Continue from an earlier process: what its members had is assigned again, to anyone, except what is to be
        delivered exactly once."""
        self.held = saved.held
        for offsets in (*saved.held.values(), saved.ended):
            self._account.held |= offsets
            self._account.once |= offsets
        self.acknowledged(saved.ended)

    def connected(self, feed: Member) -> None:
        super().connected(feed)
        self.is_once = self.is_once or feed.qos == 2
        self._account.noticed()
        self._give_up()

    def disconnected(self, feed: Member, returned: Iterable[int], held: Iterable[int]) -> None:
        super().disconnected(feed, returned, held)
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

    def given(self, offsets: Iterable[int], *, again_below: int, once: bool) -> None:
        """Take offsets that the group has assigned. again_below: another member may have had those below. once: they
        may be delivered exactly once."""
        offsets = list(offsets)
        self._open.update(offsets)
        if once:
            self._account.once.update(offsets)
        self._again.update(offset for offset in offsets if offset < again_below)
        self._returned = sorted({*self._returned, *offsets})
        self.stir()
        self._give_up()

    def _give_up(self) -> None:
        """Give back what no member of this home takes now, and what was assigned before one was granted QoS 2."""
        kept: Collection[int] = ()
        if self._idle or self.busy is not None or self._woken:
            kept = self._account.once if self.is_once else self._open
        if returned := [offset for offset in self._returned if offset not in kept]:
            self._returned = [offset for offset in self._returned if offset in kept]
            self._account.returned(returned, self._again)
            self._again.difference_update(returned)

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
        """Return the offsets to deliver next, a share for each woken member."""
        end = self.log.end_offset
        here = [offset for offset in super().next_returned() if offset < end]
        return here[: -(-len(here) // (1 + len(self._woken)))]

    def sent(self, offsets: Iterable[int]) -> None:
        """Note offsets sent to a member: they are open since they were assigned to this home."""
        if not self._account.once.isdisjoint(offsets):
            self.note()

    def acknowledged(self, offsets: Iterable[int]) -> None:
        offsets = list(offsets)
        self._again.difference_update(offsets)
        if self._account.acknowledged(offsets):
            self.note()

    def _give_back(self, offsets: Iterable[int], again: Iterable[int] | None = None) -> None:
        super()._give_back(offsets, again)
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
        """Of messages. The first one on a connection stands for that."""
        self._unsure: dict[tuple[int, str], int] = {}
        """End of a log when an account of it was over."""
        self._refused: dict[int, object | None] = {}
        """By shard: connection with a message that was not understood."""
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
            names = group.log, group.topic_filter, group.seen, group.owner, changed
            # Before the first message: of an earlier process.
            unsure_below = self._unsure.get(key[:2], 0 if self._loop is not None else group.log.end_offset)
            self._accounts[key] = Account(*names, unsure_below)
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
        wholes = [account.whole(link.number) for account in self._of(shard)]
        self._tell(shard, link, link.number, {"is_first": True, "groups": wholes})

    def _flush(self, shard: int) -> None:
        link = self._agreed.get(shard)
        if link is None or link.connection is not self._partitions.connection(shard):
            return  # until it is agreed again
        if changed := self._changed.pop(shard, None):
            number = next(self._numbers)
            self._tell(shard, link, number, {"groups": [account.news(number) for account in changed]})
        self._drop_ended(shard)

    def _of(self, shard: int) -> list[Account]:
        return [account for key, account in self._accounts.items() if key[0] == shard]

    def _drop_ended(self, shard: int) -> None:
        for key in [key for key, one in self._accounts.items() if key[0] == shard and one.is_over]:
            self._unsure[key[:2]] = self._accounts.pop(key).log.end_offset

    def _tell(self, shard: int, link: _Link, number: int, message: dict[str, Any]) -> None:
        message |= {"connection": link.number, "number": number}
        self._partitions.tell(shard, json.dumps(message, separators=(",", ":")).encode())

    def _heard(self, shard: int, data: bytes) -> None:
        try:
            message = json_object(data)
            link = self._asked.get(shard)
            if link is None or integer(message["connection"]) != link.number:
                return  # of before
            if message.get("agree", False):
                self._agreed.pop(shard, None)  # `tick` asks again
                return
            if self._agreed.get(shard) is not link:
                self._agreed[shard] = link
                self._flush(shard)
            if "saved" in message:
                for account in self._of(shard):
                    account.confirmed(integer(message["saved"]))
            if "offsets" in message:
                key = shard, str(message["log"]), str(message["filter"])
                self._given(key, message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._agreed.pop(shard, None)  # `tick` asks again, and names what is open here
            connection = self._partitions.connection(shard)
            if connection is not self._refused.get(shard):
                self._refused[shard] = connection
                what = "a message of its leader is not understood; members here get no records of it until its node"
                _LOG.warning("shared subscriptions of shard %d: %s has this version: %r", shard, what, error)

    def _given(self, key: tuple[int, str, str], message: dict[str, Any]) -> None:
        account, offsets = self._accounts.get(key), integers(message["offsets"])
        again_below, once = integer(message["again_below"]), bool(message["once"])
        if account is None:
            return  # it has ended, and the group will know
        account.asked = max(0, account.asked - 1)
        if account.group is not None:
            account.group.given(offsets, again_below=again_below, once=once)
        else:
            account.held.update(offsets)
            account.returned(offsets, [offset for offset in offsets if offset < again_below])
