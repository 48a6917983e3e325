"""Shared subscription: its members, and the assignment of records of one log to them.

A record is assigned to one member and open until that member acknowledges it. Unacknowledged records of a member
that leaves go to the next that asks. Members pull: a slow, full or disconnected one blocks no other."""

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from timestone.log import Log
from timestone.reading.batch import Batch

if TYPE_CHECKING:
    from mqtt_front.sessions.session import Session

_QUANTUM = 32
"""Number of records for which another member is woken."""
_CLOSED_MAX = 1000
"""Acknowledged offsets kept above the lowest open one, or as many as are open: one member may take arbitrarily long
while others continue."""


class Taker(Protocol):
    """What waits for records: a connected member, or a request of another home."""

    @property
    def room(self) -> int:
        """Return how many records it can take."""

    @property
    def takes_part(self) -> bool:
        """Return whether the group assigns records to it."""

    def wake(self) -> None: ...


class Member(Taker, Protocol):
    """Feed of a member. Implemented by `SharedFeed`."""

    @property
    def session(self) -> "Session": ...
    @property
    def qos(self) -> int:
        """Return the highest QoS that it is granted."""

    @property
    def held(self) -> list[int]:
        """Return the offsets that it has in flight at QoS 2, in order."""


class SavedGroup(NamedTuple):
    """State of a group as an earlier process has saved it."""

    seen: int
    open_offsets: set[int]
    held: dict[str, set[int]]
    ended: set[int]
    """Those that ended sessions had at QoS 2."""
    sent_below: int
    unsure: dict[str, int]


def once_key(home: str) -> str:
    """Return the key of what another home has to deliver exactly once, by that of its members."""
    return f"{home}/2"


class SharedGroup:
    """One shared subscription in one log. Event-loop thread only, except for `woken`, which the appending thread
    calls.

    In a cluster with several shards it is at the home that leads the log. A session of another home is a member of its
    group there (`remote_group`), and that home is a member here, with the key `home_key`: what it has is in `held`, by
    that key and by its `once_key`."""

    has_place = True
    """Whether it decides what is next, so that its position is worth a name."""

    def __init__(
        self,
        log: Log,
        topic_filter: str,
        pattern: str,
        start: int,
        *,
        durable: bool,
        owner: str,
        changed: "set[SharedGroup]",
    ) -> None:
        """topic_filter: as sent by clients. pattern: the filter that topics must match. durable: whether it exists
        without members. owner: whose share it counts for (`Shares`). It adds itself to `changed` when there is
        something to save."""
        self.log = log
        self.topic_filter = topic_filter
        self.pattern = pattern
        self.durable = durable
        self.owner = owner
        self.unused_s = 0.0
        """When its last member left, in seconds since 1970; 0 while it has members or before that is noticed."""
        self.seen = start
        """Everything below was assigned, or is not for the group."""
        self.sent_below = 0
        """An earlier process may have assigned offsets below this one to own members before it was killed."""
        self.unsure: dict[str, int] = {}
        """By home: the same for its members, apart from what it has named."""
        self.members: dict[str, Member | None] = {}
        """Every member session by key, with its feed while its client is connected."""
        self.connected_count = 0
        """Number of connected members."""
        self.held: dict[str, set[int]] = {}
        """Open offsets at QoS 2 of disconnected clients by session key, only for that client [MQTT-4.8.2-4]; and those
        that other homes have."""
        self._ahead: set[int] = set()
        """Offsets above `seen` that other homes have taken: an earlier process was killed before it had noted that."""
        self._changed = changed
        self.touch()
        self.busy: Taker | None = None
        """Member for which a thread is reading."""
        self._open: set[int] = set()
        self._lowest: list[int] = []
        self._returned: list[int] = []
        self._again: set[int] = set()
        """Open offsets that a member may have had."""
        self._idle: deque[Taker] = deque()
        self._waker = log.reader(min(max(start, log.start_offset), log.end_offset), topics=[pattern])
        self._waker.on_wake = lambda reader, offset: self.woken()

    @property
    def is_settled(self) -> bool:
        """Return whether it may end: no group elsewhere has to learn something first."""
        return True

    @property
    def done(self) -> Collection[int]:
        """Return what a group elsewhere has to learn: saved with the group."""
        return ()

    def touch(self) -> None:
        """Note that there is something to save."""
        self._changed.add(self)

    @property
    def committed(self) -> int:
        """Return the lowest offset that is not assigned or not acknowledged."""
        while self._lowest and self._lowest[0] not in self._open:
            heapq.heappop(self._lowest)
        return self._lowest[0] if self._lowest else self.seen

    @property
    def open_offsets(self) -> frozenset[int]:
        """Return the assigned, unacknowledged offsets."""
        return frozenset(self._open)

    def restore(self, saved: SavedGroup) -> None:
        """Continue from an earlier process: open offsets go to any member that asks, except those held at QoS 2."""
        self.seen, self.held = saved.seen, saved.held
        self.sent_below, self.unsure = saved.sent_below, saved.unsure
        self._open = saved.open_offsets - saved.ended
        self._lowest = sorted(self._open)
        self._returned = sorted(self._open.difference(*self.held.values()))
        self._again = set(self._returned)

    # Members.

    def join(self, member: str) -> None:
        """Add a session."""
        if member not in self.members:
            self.members[member] = None
            self._members_changed()

    def leave(self, member: str) -> None:
        """Remove a session; what it held at QoS 2 is dropped [MQTT-4.8.2-5]."""
        if member in self.members:
            self.connected_count -= self.members.pop(member) is not None
            self._members_changed()
        self.acknowledged(self.held.pop(member, ()))

    def rename(self, member: str, new: str) -> None:
        """Change the key of a disconnected session."""
        del self.members[member]
        self.members[new] = None
        if member in self.held:
            self.held[new] = self.held.pop(member)
        self._members_changed()

    def _members_changed(self) -> None:
        self.touch()

    def connected(self, feed: Member) -> None:
        """Note that the client of a member is connected."""
        if self.members.get(feed.session.key) is not feed:
            self.connected_count += self.members.get(feed.session.key) is None
            self.members[feed.session.key] = feed
        self.held.pop(feed.session.key, None)
        self.touch()

    def disconnected(self, feed: Member, returned: Iterable[int], held: Iterable[int]) -> None:
        """Note that the client of a member is disconnected. returned: offsets for other members; held: offsets for
        this client alone. Those of a subscription that has ended are done for the group."""
        member = feed.session.key
        if self.members.get(member) is feed:
            self.members[member] = None
            self.connected_count -= 1
            if holding := set(held):
                self.held[member] = holding
        self.rest(feed)
        self._give_back(returned)

    def rest(self, feed: Taker) -> None:
        """Stop assigning to a member; what is being read for it is not assigned."""
        if self.busy is feed:
            self.busy = None
        try:
            self._idle.remove(feed)
        except ValueError:
            pass
        self.stir()

    # Assignment.

    @property
    def backlog(self) -> int:
        """Return the number of offsets that may be for the group and are not assigned, or were returned."""
        return len(self._returned) + max(0, self.log.end_offset - self.seen)

    @property
    def next_offset(self) -> int:
        """Return where the next read begins."""
        return self._returned[0] if self._returned else self.seen

    def next_returned(self) -> list[int]:
        """Return the next returned offsets in order, all of which a member may have had, or none. Returned ones are
        assigned before new ones."""
        _, run = next(itertools.groupby(self._returned, self._again.__contains__), (False, ()))
        return list(run)

    def share(self, room: int) -> int:
        """Return how many records a member with `room` should take: its share, however few there are, so that a
        burst of work is distributed."""
        return max(1, min(room, -(-self.backlog // max(1, self.connected_count))))

    def may_read(self, feed: Taker) -> bool:
        """Return whether there may be records to read for a member now."""
        return self.busy in (None, feed)

    def repeats(self, returned: list[int]) -> bool:
        """Return whether another member may have had these offsets, as of a read of `returned` ones."""
        return bool(self._again.intersection(returned[:1]))

    @property
    def assigned_below(self) -> int:
        """Return below which offset a member may have had new records, because of an earlier process."""
        return max([self.sent_below, *self.unsure.values()])

    def took(self, batch: Batch, returned: list[int]) -> Batch:
        """Note a batch read for assignment, of `returned` offsets or of new ones, and return the part to assign."""
        self.touch()
        self.busy = None
        if returned:
            found = set(batch.offsets.tolist())
            passed = {offset for offset in returned if offset < batch.next_offset}
            left = passed.intersection(self._returned)
            if left != passed:  # another home has them after all
                batch = batch.select(np.isin(batch.offsets, list(left)))
            self._returned = [offset for offset in self._returned if offset not in left]
            self.acknowledged(left - found)
        else:
            self.seen = max(self.seen, batch.next_offset)
            if self._ahead:
                batch = batch.select(~np.isin(batch.offsets, list(self._ahead)))
                self._ahead = {offset for offset in self._ahead if offset >= self.seen}
        self.stir()
        return batch

    def passed(self, feed: Taker) -> None:
        """Note that a member takes nothing now, though it may have been woken."""
        self.stir()

    def sent(self, offsets: Iterable[int]) -> None:
        """Note offsets sent to a member, which will acknowledge them."""
        self.touch()
        for offset in offsets:
            if offset not in self._open:
                self._open.add(offset)
                heapq.heappush(self._lowest, offset)
        if len(self._lowest) > 2 * len(self._open) + _CLOSED_MAX:
            self._lowest = sorted(self._open)

    def acknowledged(self, offsets: Iterable[int]) -> None:
        """Remove offsets that need no delivery any more."""
        self.touch()
        offsets = list(offsets)
        self._open.difference_update(offsets)
        self._again.difference_update(offsets)

    def skip(self, offset: int, returned: list[int]) -> None:
        """Skip the offsets below, which cannot be read."""
        self.busy = None
        if returned:
            lost = {one for one in returned if one < offset}
            self._returned = [one for one in self._returned if one not in lost]
            self.acknowledged(lost)
        else:
            self.seen = max(self.seen, offset)
        self.touch()

    def _give_back(self, offsets: Iterable[int], again: Iterable[int] | None = None) -> None:
        """Assign offsets to others. again: those that a member may have had, by default all."""
        open_again = self._open.intersection(offsets)
        if open_again:
            self._returned = sorted({*self._returned, *open_again})
            self._again |= open_again if again is None else open_again.intersection(again)
            self.touch()
        self.stir()

    # Members of other homes: what one has is in `held`.

    def had_by(self, home: str) -> set[int]:
        """Return what a home has."""
        return self.held.get(home, set()) | self.held.get(once_key(home), set())

    def give(self, home: str, offsets: Iterable[int], *, once: bool = False) -> None:
        """Assign offsets to a home. once: to be delivered exactly once, so that the home keeps them while it is away.
        Only to be sent there when the group is saved then."""
        offsets = set(offsets)
        if offsets:
            self.sent(offsets)
            self.held.setdefault(once_key(home) if once else home, set()).update(offsets)

    def settle(self, home: str, offsets: Iterable[int]) -> None:
        """Note acknowledgements of its members."""
        self.acknowledged(self._let_go(home, offsets))

    def take_back(self, home: str, offsets: Iterable[int], again: Iterable[int] | None = None) -> None:
        """Assign offsets to others that a home has. again: those that a member may have had, by default all."""
        self._give_back(self._let_go(home, offsets), again)

    def _let_go(self, home: str, offsets: Iterable[int]) -> set[int]:
        offsets, let_go = set(offsets), set[int]()
        for key in (home, once_key(home)):
            held = self.held.get(key, set())
            let_go |= held & offsets
            held -= offsets
            if not held:
                self.held.pop(key, None)
        return let_go

    def agree(self, home: str, held: set[int], done: set[int], unsure_below: int) -> None:
        """Take the word of a home for what it has, and what its members have acknowledged of late: an earlier process
        here may not have noted all of it, and messages of the connection before this one may be lost. unsure_below: its
        members may have had other offsets below this one."""
        self.touch()
        mine = self.had_by(home)
        once = self.held.pop(once_key(home), set()) & held
        self._ahead |= {offset for offset in held | done if offset >= self.seen}
        free = mine | self._ahead | set(self._returned)
        self.acknowledged(free & done)
        self._returned = [offset for offset in self._returned if offset not in held and offset not in done]
        self.held.pop(home, None)
        self.give(home, (held & free) - done - once)
        self.give(home, once - done, once=True)
        self._give_back(lost := mine - held - done, [offset for offset in lost if offset < unsure_below])
        self.unsure[home] = min(self.unsure.get(home, 0), unsure_below)

    def count(self, connected: int, before: int) -> None:
        """Note how many members of a home are connected, and were before."""
        self.connected_count += connected - before

    # Waiting.

    def park(self, feed: Taker) -> bool:
        """Make a member wait for records. Return False if there are some already."""
        if feed in self._idle:
            return True
        self._idle.append(feed)
        if self.busy is None and not self._arm():
            try:
                self._idle.remove(feed)
            except ValueError:
                return True  # the appending thread was faster and has woken it
            return False
        return True

    def stir(self) -> None:
        """Wake as many members as there is work for, the longest waiting first."""
        if self.busy is not None or not self._idle:
            return
        for _ in range(min(len(self._idle), -(-self.backlog // _QUANTUM))):
            self.woken()
        if self._idle:
            self._arm()

    def woken(self) -> None:
        """Wake a waiting member, if there is one."""
        try:
            feed = self._idle.popleft()
        except IndexError:
            return
        self._wake(feed)

    def _wake(self, feed: Taker) -> None:
        feed.wake()

    def _arm(self) -> bool:
        """Register for the next append that concerns the group. Return False if there is something now."""
        if self.backlog:
            return False
        self._waker.offset = self.seen
        return self._waker.park()

    def close(self) -> None:
        """End the group."""
        self._waker.close()
