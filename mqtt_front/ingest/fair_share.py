"""Fair share of the front among publishers: which connections are not read from, so that TCP slows their clients.

All publishes go through one loop into few logs, so the bytes that one client has in flight delay all others. A
client over its limit is not read from until half of its bytes are settled. While every publisher has many bytes in
flight, nothing else happens. When modest clients publish too, the greedy ones take turns (deficit round robin): in
each turn a client reads one portion, which is the share of one of as many clients in that time; the next portion
follows when that is settled, and a portion never exceeds a quarter of the limit, because it is read at once. Shares
that modest clients do not use stay unused, which keeps their latency unchanged (docs/decisions/0020-fair-share.md)."""

from collections.abc import Collection

from mqtt_front.kernel.publish_fast_path import Source
from mqtt_front.runtime.loop import Loop

LOOK_S = 0.1
"""Window for classifying publishers as modest or greedy; skipped while none is greedy."""
FIRST_LOOK_S = 0.02
LOOKS = 10
"""Windows without a greedy publisher after which classification stops."""
TURN_S = 0.004
TURN_BYTES = 2 * 1024 * 1024
"""Approximate bytes that the front takes from all clients in a turn."""


class _Seen:
    """Publishers of one window. The greedy ones are a subset of the busy ones."""

    __slots__ = ("busy", "greedy", "publishing")

    def __init__(self) -> None:
        self.publishing: set[Source] = set()
        self.busy: set[Source] = set()
        """Publishers that had more in flight than a modest client."""
        self.greedy: set[Source] = set()
        """Publishers that exceeded their limit."""


class FairShare:
    """Paused connections, and those of them that take turns. Event-loop thread only."""

    def __init__(self, loop: Loop, *, total_bytes: int, client_bytes: int, share_bytes_per_s: int) -> None:
        """total_bytes, client_bytes: limits of unsettled bytes, of all clients and of one. The third is the minimum
        rate of a greedy client regardless of the number of others."""
        self._loop = loop
        self._total_bytes = total_bytes
        self._client_bytes = client_bytes
        self._greedy_bytes = client_bytes // 2
        self.modest_bytes = client_bytes // 8
        """A client that never has more in flight is modest: its latency counts. `check` is called for the others."""
        self._least_portion = max(1, int(share_bytes_per_s * TURN_S))
        self._most_portion = max(self._least_portion, client_bytes // 4)
        self.held: dict[Source, None] = {}
        """Paused connections, the one that waits longest first."""
        self.modest_s = -LOOK_S
        """When a modest client last published, while no window is open."""
        self._seen = _Seen()
        """The open window."""
        self._known = _Seen()
        """The last complete window."""
        self._others = False
        """Whether modest clients publish too, so that greedy ones take turns."""
        self._in_turn: set[Source] = set()
        self._share_bytes = 0
        """Share of one client in a turn, in bytes."""
        self.looks_left = 0
        self._turning = False

    def check(self, source: Source, submitted_bytes: int) -> None:
        """Check a connection that has sent publishes; `submitted_bytes` of all together are not settled."""
        if self.looks_left and source.submitted_bytes > self.modest_bytes:
            self._seen.busy.add(source)
        if source.submitted_bytes > self._greedy_bytes:
            self._found_greedy(source)
        if source.submitted_bytes > self._client_bytes or submitted_bytes > self._total_bytes:
            self._hold(source)

    def submitted(self, sources: Collection[Source]) -> None:
        """Note that publishes of these connections are submitted."""
        if self.looks_left:
            self._seen.publishing.update(sources)
            if not self._others and not all(self._is_busy(source) for source in sources):
                # Until the next window counts them, assume many clients.
                self._others = True
                self._take_turns(self._known.greedy | self._seen.greedy, self._least_portion)
            return
        for source in sources:
            if source.submitted_bytes <= self.modest_bytes:
                self.modest_s = self._loop.time()
                break

    def served(self, source: Source) -> None:
        """Note that a connection has read its portion."""
        if source in self._in_turn:
            self._seen.greedy.add(source)
            self._hold(source)

    def settled(self, submitted_bytes: int) -> None:
        """Resume connections that have at most half of their limit in flight; `submitted_bytes` of all together are
        not settled. Not at the limit itself, where each message would toggle it."""
        if self.held and submitted_bytes <= self._total_bytes // 2:
            for source in [one for one in self.held if one not in self._in_turn]:
                self._release_half_settled(source)

    def _found_greedy(self, source: Source) -> None:
        self._seen.busy.add(source)
        self._seen.greedy.add(source)
        if not self.looks_left:
            self._loop.call_later(FIRST_LOOK_S, self._look)
            # Until the first window has counted them, assume modest clients.
            self._others, self._share_bytes = self._loop.time() - self.modest_s < LOOK_S, self._least_portion
        self.looks_left = LOOKS
        if self._others and source not in self._in_turn:
            self._take_turns(self._in_turn | {source}, self._share_bytes)

    def _is_busy(self, source: Source) -> bool:
        return source in self._seen.busy or source in self._known.busy

    def _hold(self, source: Source) -> None:
        if source not in self.held:
            self.held[source] = None
            source.hold()

    def _release(self, source: Source, portion: int) -> None:
        del self.held[source]
        source.release(portion)

    def _release_half_settled(self, source: Source) -> None:
        if source.submitted_bytes <= self._client_bytes // 2:
            self._release(source, 0)

    def _look(self) -> None:
        """Close the window: pause its greedy publishers if modest ones were seen."""
        seen, before = self._seen, self._in_turn
        seen.greedy |= before & self.held.keys()
        seen.busy |= seen.greedy
        seen.publishing |= seen.busy
        self.looks_left = LOOKS if seen.greedy else self.looks_left - 1
        self._known, self._seen = seen if self.looks_left else _Seen(), _Seen()
        self._others = self.looks_left > 0 and seen.publishing > seen.busy
        self._take_turns(seen.greedy if self._others else set(), TURN_BYTES // max(1, len(seen.publishing)))
        for source in (before - self._in_turn) & self.held.keys():
            self._release_half_settled(source)
        if self.looks_left:
            self._loop.call_later(LOOK_S, self._look)

    def _take_turns(self, greedy: set[Source], share_bytes: int) -> None:
        """Make these connections take turns, each client with a share of `share_bytes`."""
        newcomers = greedy - self._in_turn
        self._in_turn, self._share_bytes = greedy, share_bytes
        for source in newcomers:
            self._hold(source)
        if greedy and not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Let each connection whose last portion is settled read a portion, within what there is for all."""
        self._turning = bool(self._in_turn)
        if not self._turning:
            return
        portion = max(self._least_portion, min(self._share_bytes, self._most_portion))
        left = max(portion, self._share_bytes * len(self._in_turn))
        for source in [one for one in self.held if one in self._in_turn and not one.submitted_bytes]:
            if left <= 0:
                break
            left -= portion
            self._release(source, portion)
        self._loop.call_later(TURN_S, self._turn)
