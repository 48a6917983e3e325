"""Who is not read from for a while, so that TCP slows it, and when it is read from again.

All publishes go through one loop into few logs, so what a client has on the way is what all others wait behind. Whoever
has more of it than it may is not read from until half is settled. As long as all who publish are that greedy, nothing
else happens. Once others publish as well, the greedy ones take turns (deficit round robin): at each turn a portion,
which is what one of so many clients could have of the front in that time, and the next one not before that is settled;
never more than it may have on the way, because that is read in one go.
What the others leave of theirs is left alone, for that is what keeps their latency what it was
(docs/decisions/0020-fair-share.md).
"""

from collections.abc import Iterable
from typing import Protocol

from mqtt_front.loop import Loop

LOOK_S = 0.1
"""Who publishes, and who is greedy, is who was within this time. While nobody is greedy, nobody looks."""
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


class FairShare:
    """Those that are not read from, and those of them that take turns. Used by the event loop's thread only."""

    def __init__(self, loop: Loop, *, total_bytes: int, client_bytes: int, share_bytes_per_s: int) -> None:
        """The first two bound what is not settled, of all and of one client; the third is what a greedy client gets
        at least, however many others there are."""
        self._loop = loop
        self._total_bytes = total_bytes
        self._client_bytes = client_bytes
        self._least_portion = max(1, int(share_bytes_per_s * TURN_S))
        self._held: dict[Holdable, None] = {}
        """Who is not read from, the one that waits longest first."""
        self._publishing: set[Holdable] = set()
        """Who published since the last look, as far as anybody looks."""
        self._greedy: set[Holdable] = set()
        """Who wanted more than it may since the last look."""
        self._known: set[Holdable] = set()
        """Who was greedy at the last look."""
        self._others = False
        """At the last look, others than these published as well; or one has since."""
        self._in_turn: set[Holdable] = set()
        """The greedy ones, while there are others."""
        self._portion = self._turn_bytes = 0
        self._looks_left = 0
        self._turning = False

    def check(self, source: Holdable, submitted_bytes: int) -> None:
        """The source has sent publishes; `submitted_bytes` of all together are not settled."""
        if source.submitted_bytes > self._client_bytes:
            self._greedy.add(source)
            if self._others:
                self._in_turn.add(source)
            self._hold(source)
            if not self._looks_left:
                self._loop.call_later(FIRST_LOOK_S, self._look)
            self._looks_left = LOOKS
        elif submitted_bytes > self._total_bytes:
            self._hold(source)

    def submitted(self, sources: Iterable[Holdable]) -> None:
        """What these have sent is on its way."""
        if self._looks_left:
            self._publishing.update(sources)
            if self._known and not self._others and not self._known.issuperset(sources):
                # Until the next look tells how many there are, the newcomer is one of many.
                self._share(self._known | self._greedy, self._least_portion)

    def served(self, source: Holdable) -> None:
        """The portion of a source was read."""
        if source in self._in_turn:
            self._greedy.add(source)
            self._hold(source)

    def settled(self, submitted_bytes: int) -> None:
        """`submitted_bytes` of all together are not settled any more: read again from those that have half of what
        they may on the way. Not at the bound, where each message would toggle it."""
        if self._held and submitted_bytes <= self._total_bytes // 2:
            for source in [one for one in self._held if one not in self._in_turn]:
                self._release_half_settled(source)

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
        """Who was greedy since the last look, and was anybody else there?"""
        greedy = self._greedy | (self._in_turn & self._held.keys())
        count = len(self._publishing | greedy)
        self._known, self._greedy, self._publishing = greedy, set(), set()
        self._looks_left = LOOKS if greedy else self._looks_left - 1
        before, self._in_turn = self._in_turn, set()
        self._others = len(greedy) < count and self._looks_left > 0
        if self._others:
            self._share(greedy, TURN_BYTES // count)
        for source in (before - self._in_turn) & self._held.keys():
            self._release_half_settled(source)
        if self._looks_left:
            self._loop.call_later(LOOK_S, self._look)

    def _share(self, greedy: set[Holdable], share: int) -> None:
        """These take turns from now on; in each, one of all clients has a share of so many bytes."""
        self._others = True
        self._in_turn = greedy
        self._portion = max(self._least_portion, min(share, self._client_bytes))
        self._turn_bytes = max(self._portion, share * len(greedy))
        if greedy and not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Read a portion of each whose last one is settled, as far as what there is for all of them goes."""
        self._turning = bool(self._in_turn)
        if not self._turning:
            return
        left = self._turn_bytes
        for source in [one for one in self._held if one in self._in_turn and not one.submitted_bytes]:
            if left <= 0:
                break
            left -= self._portion
            self._release(source, self._portion)
        self._loop.call_later(TURN_S, self._turn)
