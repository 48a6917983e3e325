"""The members of a shared subscription, and which records of one log are whose.

A record is handed to one member and is open until that member has acknowledged it. What a member leaves unacknowledged
goes to whoever asks next. Members pull: one that is slow, full or gone keeps no record from the others.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from timestone.log import Log
from timestone.reading.batch import Batch

_QUANTUM = 32
"""Records that are worth waking another member for."""
_CLOSED_MAX = 1000
"""So many acknowledged offsets are kept behind the lowest open one, or as many as are open: one member may take for
ever with it, while the others continue."""


class OpenDelivery(Protocol):
    """A delivery that a member has not acknowledged."""

    @property
    def feed(self) -> object: ...
    @property
    def offset(self) -> int: ...
    @property
    def qos(self) -> int: ...


class MemberSession(Protocol):
    """The session of a member."""

    key: str

    @property
    def in_flight(self) -> Mapping[int, OpenDelivery]: ...


class Member(Protocol):
    """The feed of a member. Implemented by `SharedFeed`."""

    @property
    def session(self) -> MemberSession: ...

    def wake(self) -> None: ...


class SharedGroup:
    """One shared subscription in one log. Used by the event loop's thread, but `woken`, which is for the thread that
    appends."""

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
        """`topic_filter` as clients write it, `pattern` what topics have to match. `durable`: it survives without
        members. `owner`: whose share it counts for (`Shares`). It puts itself into `changed` when there is something to
        save."""
        self.log = log
        self.topic_filter = topic_filter
        self.pattern = pattern
        self.durable = durable
        self.owner = owner
        self.unused_s = 0.0
        """Since when it has had no members, in seconds since 1970; 0 while it has, or until that is noticed."""
        self.seen = start
        """Everything below was handed out, or is not for the group."""
        self.members: dict[str, Member | None] = {}
        """By key: every session that has the subscription, with its feed while its client is connected."""
        self.connected_count = 0
        """Members whose clients are there."""
        self.held: dict[str, set[int]] = {}
        """By key of the session: open offsets at QoS 2 of a client that is away. They are for it alone
        [MQTT-4.8.2-4]."""
        self._changed = changed
        self.touch()
        self.busy: Member | None = None
        """The member that a thread is reading for."""
        self._open: set[int] = set()
        self._lowest: list[int] = []
        self._returned: list[int] = []
        self._idle: deque[Member] = deque()
        self._waker = log.reader(min(max(start, log.start_offset), log.end_offset), topics=[pattern])
        self._waker.on_wake = lambda reader, offset: self.woken()

    def touch(self) -> None:
        """There is something to save."""
        self._changed.add(self)

    @property
    def committed(self) -> int:
        """The lowest offset that somebody has still to get or to acknowledge."""
        while self._lowest and self._lowest[0] not in self._open:
            heapq.heappop(self._lowest)
        return self._lowest[0] if self._lowest else self.seen

    @property
    def open_offsets(self) -> frozenset[int]:
        """What was handed out, and not acknowledged."""
        return frozenset(self._open)

    def restore(self, seen: int, open_offsets: Iterable[int], held: dict[str, set[int]]) -> None:
        """Go on where an earlier process was: what was open is for whoever asks, but what is held."""
        self.seen, self.held = seen, held
        self._open = set(open_offsets)
        self._lowest = sorted(self._open)
        self._returned = sorted(self._open.difference(*held.values()))

    # Members.

    def join(self, member: str) -> None:
        """A session has the subscription."""
        if member not in self.members:
            self.members[member] = None
            self.touch()

    def leave(self, member: str) -> None:
        """A session has it no more: what it held at QoS 2 is for nobody [MQTT-4.8.2-5]."""
        if member in self.members:
            self.connected_count -= self.members.pop(member) is not None
            self.touch()
        self.acknowledged(self.held.pop(member, ()))

    def rename(self, member: str, new: str) -> None:
        """The session of a client that is away has another key from now on."""
        del self.members[member]
        self.members[new] = None
        if member in self.held:
            self.held[new] = self.held.pop(member)
        self.touch()

    def connected(self, feed: Member) -> None:
        """A member's client is there."""
        if self.members.get(feed.session.key) is not feed:
            self.connected_count += self.members.get(feed.session.key) is None
            self.members[feed.session.key] = feed
        self.held.pop(feed.session.key, None)
        self.touch()

    def disconnected(self, feed: Member, returned: Iterable[int], held: Iterable[int]) -> None:
        """A member's client is gone. `returned` is for others; `held` is for it alone."""
        member = feed.session.key
        if self.members.get(member) is feed:
            self.members[member] = None
            self.connected_count -= 1
        if holding := set(held):
            self.held[member] = holding
        self.rest(feed)
        self._give_back(returned)

    def rest(self, feed: Member) -> None:
        """A member asks for nothing any more; what is on its way to it alone is on its way to nobody."""
        if self.busy is feed:
            self.busy = None
        try:
            self._idle.remove(feed)
        except ValueError:
            pass
        self.stir()

    # Handing out.

    @property
    def backlog(self) -> int:
        """Offsets that may be for the group and were not handed out, or were returned."""
        return len(self._returned) + max(0, self.log.end_offset - self.seen)

    @property
    def next_offset(self) -> int:
        """Where the next read begins."""
        return self._returned[0] if self._returned else self.seen

    def next_returned(self) -> list[int]:
        """What was returned, in order; it is handed out before anything new."""
        return list(self._returned)

    def share(self, room: int) -> int:
        """How many records a member with so much room should take: its part, however few there are. Who shares a
        subscription expects that work which comes at once does not all go to one."""
        return max(1, min(room, -(-self.backlog // max(1, self.connected_count))))

    def took(self, batch: Batch, returned: list[int]) -> None:
        """A batch was read to be handed out: of `returned` offsets if there are any, else what was new."""
        self.touch()
        self.busy = None
        if returned:
            found = set(batch.offsets.tolist())
            passed = [offset for offset in returned if offset < batch.next_offset]
            gone = {offset for offset in passed if offset not in found}
            left = set(passed)
            self._returned = [offset for offset in self._returned if offset not in left]
            self.acknowledged(gone)
        else:
            self.seen = max(self.seen, batch.next_offset)
        self.stir()

    def sent(self, offsets: Iterable[int]) -> None:
        """These were handed to a member, which will acknowledge them."""
        self.touch()
        for offset in offsets:
            if offset not in self._open:
                self._open.add(offset)
                heapq.heappush(self._lowest, offset)
        if len(self._lowest) > 2 * len(self._open) + _CLOSED_MAX:
            self._lowest = sorted(self._open)

    def acknowledged(self, offsets: Iterable[int]) -> None:
        """Nobody has to get these any more."""
        self.touch()
        self._open.difference_update(offsets)

    def skip(self, offset: int, returned: list[int]) -> None:
        """What lies below an offset cannot be read."""
        self.busy = None
        if returned:
            lost = {one for one in returned if one < offset}
            self._returned = [one for one in self._returned if one not in lost]
            self.acknowledged(lost)
        else:
            self.seen = max(self.seen, offset)
        self.touch()

    def _give_back(self, offsets: Iterable[int]) -> None:
        open_again = self._open.intersection(offsets)
        if open_again:
            self._returned = sorted({*self._returned, *open_again})
            self.touch()
        self.stir()

    # Waiting.

    def park(self, feed: Member) -> bool:
        """A member waits until there is something for it. False when there is already."""
        if feed in self._idle:
            return True
        self._idle.append(feed)
        if self.busy is None and not self._arm():
            try:
                self._idle.remove(feed)
            except ValueError:
                return True  # the thread that appended was faster, and has woken it
            return False
        return True

    def stir(self) -> None:
        """Wake as many members as there is work for, the one that has waited longest first."""
        if self.busy is not None or not self._idle:
            return
        for _ in range(min(len(self._idle), -(-self.backlog // _QUANTUM))):
            self.woken()
        if self._idle:
            self._arm()

    def woken(self) -> None:
        """There is something for a member that waits, if one does."""
        try:
            feed = self._idle.popleft()
        except IndexError:
            return
        feed.wake()

    def _arm(self) -> bool:
        """See to it that the next append that concerns the group wakes a member. False when there is something now."""
        if self.backlog:
            return False
        self._waker.offset = self.seen
        return self._waker.park()

    def close(self) -> None:
        """The group is no more."""
        self._waker.close()
