"""Connections: the client protocols of a front, and the limits over all of them."""

from mqtt_front.errors import ProtocolViolation
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.net.client_socket import Counts
from mqtt_front.net.outbound_limit import OutboundLimit
from mqtt_front.reasons import Reason
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.timer_wheel import TICK_S, TimerWheel, ticks
from mqtt_front.settings import MqttSettings
from timestone_access.token_bucket import BURST_S, TokenBucket

_CLOSE_S = 5.0
"""Timeout for a closing connection to read what was written to it."""
_LINGERING_MAX = 256
"""Maximum connections that are read from only to discard, until their clients have the reason for the end."""


class Connections:
    """Event-loop thread only."""

    def __init__(self, settings: MqttSettings, deadlines: TimerWheel, loop: Loop, counts: Counts) -> None:
        self._settings = settings
        self._deadlines = deadlines
        limit = settings.connects_per_s
        self._connects = TokenBucket(limit, deadlines.now, TICK_S) if limit else None
        self.links: dict[ClientProtocol, None] = {}
        """Open connections, in order of arrival."""
        self.unsent = OutboundLimit(
            writers=self.links.keys(),
            loop=loop,
            limit_bytes=settings.total_unsent_bytes,
            writer_bytes=settings.unsent_bytes,
            sent_bytes=lambda: counts.bytes_sent,
        )
        self._lingering: set[ClientProtocol] = set()
        """Those that were sent the reason for the end and do not count as connected any more."""

    @property
    def count(self) -> int:
        """Return the number of connections that count towards the limit."""
        return len(self.links) - len(self._lingering)

    def add(self, link: ClientProtocol) -> None:
        """Add the connection of an accepted socket, and note why its CONNECT will be refused, if so."""
        link.refusal = self._refusal()
        self.links[link] = None
        self._limit(link, self._settings.connect_timeout_ms / 1000)

    def remove(self, link: ClientProtocol) -> None:
        """Remove the connection of a closed socket."""
        self.links.pop(link, None)
        self._lingering.discard(link)
        self.unsent.went_on(link)
        self._deadlines.forget(link)
        if link.stay is not None:
            self._deadlines.forget(link.stay)

    def closing(self, link: ClientProtocol, *, linger: bool) -> bool:
        """Note that a socket will be closed when its peer has read the rest, or after a timeout. Return whether
        reading from it may continue until then, if requested."""
        linger = linger and len(self._lingering) < _LINGERING_MAX
        if linger:
            self._lingering.add(link)
        self._limit(link, _CLOSE_S)
        return linger

    def _limit(self, link: ClientProtocol, seconds: float) -> None:
        link.last_seen = self._deadlines.now
        link.allowed_ticks = ticks(seconds)
        self._deadlines.watch(link)

    def _refusal(self) -> ProtocolViolation | None:
        """Return the reason to refuse any client of a new connection; None if it may connect."""
        settings = self._settings
        if settings.redirect:
            return ProtocolViolation(f"clients go to {settings.server_reference}", Reason.SERVER_MOVED)
        if self.count >= settings.connection_count:
            message = f"{settings.connection_count} clients are connected, which is the limit"
            reason = Reason.QUOTA_EXCEEDED if settings.server_reference is None else Reason.USE_ANOTHER_SERVER
            return ProtocolViolation(message, reason, "connection_count")
        if self._connects is not None and not self._connects.spend(1, self._deadlines.now):
            message = f"more than {settings.connects_per_s} connections a second for {BURST_S} seconds"
            return ProtocolViolation(message, Reason.CONNECTION_RATE_EXCEEDED, "connects_per_s")
        return None
