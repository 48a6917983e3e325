"""Who is not read from for a while, so that TCP slows it, and when it is read from again.

All publishes go through one loop into few logs, so what a client has on the way is what all others wait behind. Whoever
has more of it than it may is not read from until half is settled. As long as all who publish have much on the way,
nothing else happens. Beside modest ones, who never have, the greedy ones take turns from the first moment (deficit
round robin): at each turn a portion, which is what one of so many clients could have of the front in that time, the
next one not before that is settled, and never more than a quarter of what it may have, because that is read in one go.
What the others leave of theirs is left alone, for that is what keeps their latency what it was
(docs/decisions/0020-fair-share.md).
"""

from collections.abc import Collection
from typing import Protocol

from mqtt_front.runtime.loop import Loop

LOOK_S = 0.1
"""Who publishes, who is modest and who is greedy, is who was within this time. While nobody is greedy, nobody looks."""
FIRST_LOOK_S = 0.02
LOOKS = 10
"""After so many looks that found nobody greedy, nobody looks any more."""
TURN_S = 0.004
TURN_BYTES = 2 * 1024 * 1024
"""What the front takes of all clients in a turn, roughly."""


class Holdable(Protocol):
    """A connection as far as it is read from or not."""

    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""

    def hold(self) -> None:
        """Stop reading until `release`."""

    def release(self, portion: int) -> None:
        """Read again: so many bytes, then `FairShare.served` is to be told; 0: any number."""


class _Seen:
    """Who did what for a while: the greedy ones are among the busy ones, and those among all that published."""

    __slots__ = ("busy", "greedy", "publishing")

    def __init__(self) -> None:
        self.publishing: set[Holdable] = set()
        self.busy: set[Holdable] = set()
        """Who had more on the way than a modest client."""
        self.greedy: set[Holdable] = set()
        """Who wanted more than it may."""


class FairShare:
    """Those that are not read from, and those of them that take turns. Used by the event loop's thread only."""

    def __init__(self, loop: Loop, *, total_bytes: int, client_bytes: int, share_bytes_per_s: int) -> None:
        """The first two bound what is not settled, of all and of one client; the third is what a greedy client gets
        at least, however many others there are."""
        self._loop = loop
        self._total_bytes = total_bytes
        self._client_bytes = client_bytes
        self._greedy_bytes = client_bytes // 2
        self.modest_bytes = client_bytes // 8
        """Who never has more on the way is one of those whose latency counts: `check` whoever has."""
        self._least_portion = max(1, int(share_bytes_per_s * TURN_S))
        self._most_portion = max(self._least_portion, client_bytes // 4)
        self._held: dict[Holdable, None] = {}
        """Who is not read from, the one that waits longest first."""
        self._modest_s = -LOOK_S
        """When somebody published who had little on the way, as far as nobody looked."""
        self._seen = _Seen()
        """Since the last look, as far as anybody looks."""
        self._known = _Seen()
        """Until the last look."""
        self._others = False
        """Modest ones publish as well: the greedy ones take turns."""
        self._in_turn: set[Holdable] = set()
        self._share_bytes = 0
        """What one of all clients could have in a turn."""
        self._looks_left = 0
        self._turning = False

    def check(self, source: Holdable, submitted_bytes: int) -> None:
        """The source has sent publishes; `submitted_bytes` of all together are not settled."""
        if self._looks_left and source.submitted_bytes > self.modest_bytes:
            self._seen.busy.add(source)
        if source.submitted_bytes > self._greedy_bytes:
            self._found_greedy(source)
        if source.submitted_bytes > self._client_bytes or submitted_bytes > self._total_bytes:
            self._hold(source)

    def submitted(self, sources: Collection[Holdable]) -> None:
        """What these have sent is on its way."""
        if self._looks_left:
            self._seen.publishing.update(sources)
            if not self._others and not all(self._is_busy(source) for source in sources):
                # Until the next look tells how many there are, the newcomer is one of many.
                self._others = True
                self._take_turns(self._known.greedy | self._seen.greedy, self._least_portion)
            return
        for source in sources:
            if source.submitted_bytes <= self.modest_bytes:
                self._modest_s = self._loop.time()
                break

    def served(self, source: Holdable) -> None:
        """The portion of a source was read."""
        if source in self._in_turn:
            self._seen.greedy.add(source)
            self._hold(source)

    def settled(self, submitted_bytes: int) -> None:
        """`submitted_bytes` of all together are not settled any more: read again from those that have half of what
        they may on the way. Not at the bound, where each message would toggle it."""
        if self._held and submitted_bytes <= self._total_bytes // 2:
            for source in [one for one in self._held if one not in self._in_turn]:
                self._release_half_settled(source)

    def _found_greedy(self, source: Holdable) -> None:
        self._seen.busy.add(source)
        self._seen.greedy.add(source)
        if not self._looks_left:
            self._loop.call_later(FIRST_LOOK_S, self._look)
            # Until the first look tells how many there are, and whether they are still modest.
            self._others, self._share_bytes = self._loop.time() - self._modest_s < LOOK_S, self._least_portion
        self._looks_left = LOOKS
        if self._others and source not in self._in_turn:
            self._take_turns(self._in_turn | {source}, self._share_bytes)

    def _is_busy(self, source: Holdable) -> bool:
        return source in self._seen.busy or source in self._known.busy

    def _hold(self, source: Holdable) -> None:
        if source not in self._held:
            self._held[source] = None
            source.hold()

    def _release(self, source: Holdable, portion: int) -> None:
        del self._held[source]
        source.release(portion)

    def _release_half_settled(self, source: Holdable) -> None:
        if source.submitted_bytes <= self._client_bytes // 2:
            self._release(source, 0)

    def _look(self) -> None:
        """Who was greedy since the last look, and was anybody modest there?"""
        seen, before = self._seen, self._in_turn
        seen.greedy |= before & self._held.keys()
        seen.busy |= seen.greedy
        seen.publishing |= seen.busy
        self._looks_left = LOOKS if seen.greedy else self._looks_left - 1
        self._known, self._seen = seen if self._looks_left else _Seen(), _Seen()
        self._others = self._looks_left > 0 and seen.publishing > seen.busy
        self._take_turns(seen.greedy if self._others else set(), TURN_BYTES // max(1, len(seen.publishing)))
        for source in (before - self._in_turn) & self._held.keys():
            self._release_half_settled(source)
        if self._looks_left:
            self._loop.call_later(LOOK_S, self._look)

    def _take_turns(self, greedy: set[Holdable], share_bytes: int) -> None:
        """These take turns from now on; in each, one of all clients has a share of so many bytes."""
        newcomers = greedy - self._in_turn
        self._in_turn, self._share_bytes = greedy, share_bytes
        for source in newcomers:
            self._hold(source)
        if greedy and not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Read a portion of each whose last one is settled, as far as what there is for all of them goes."""
        self._turning = bool(self._in_turn)
        if not self._turning:
            return
        portion = max(self._least_portion, min(self._share_bytes, self._most_portion))
        left = max(portion, self._share_bytes * len(self._in_turn))
        for source in [one for one in self._held if one in self._in_turn and not one.submitted_bytes]:
            if left <= 0:
                break
            left -= portion
            self._release(source, portion)
        self._loop.call_later(TURN_S, self._turn)
