"""Sessions, their bytes and connections, counted for all clients and for each owner, and compared with the limits.

A session of a client that is away counts the bytes of its document, one that is connected about what its document would
have.
"""

from mqtt_front.runtime.user_share import Shares, Tally

SESSION_BYTES = 300
"""A session without subscriptions."""
_SUBSCRIPTION_BYTES = 150


def subscription_bytes(topic_filter: str) -> int:
    """Return the bytes that a subscription counts."""
    return _SUBSCRIPTION_BYTES + len(topic_filter.encode())


class SessionUse:
    """Used by the event loop's thread only."""

    def __init__(
        self,
        shares: Shares,
        count_limit: int = 1 << 40,
        bytes_limit: int = 1 << 60,
        connection_limit: int = 1 << 40,
    ) -> None:
        self._shares = shares
        self._count_limit = count_limit
        self._bytes_limit = bytes_limit
        self._connection_limit = connection_limit
        self.counts = Tally()
        self.sizes = Tally()
        self.connections = Tally()

    def add(self, key: str, size_bytes: int) -> None:
        """Count a session."""
        owner = self._owner(key)
        self.counts.add(owner)
        self.sizes.add(owner, size_bytes)

    def remove(self, key: str, size_bytes: int) -> None:
        """Count one session less."""
        owner = self._owner(key)
        self.counts.add(owner, -1)
        self.sizes.add(owner, -size_bytes)

    def connect(self, key: str) -> None:
        """Count a connection of the owner of a session."""
        self.connections.add(self._owner(key))

    def disconnect(self, key: str) -> None:
        """Count one connection less."""
        self.connections.add(self._owner(key), -1)

    def resize(self, key: str, size_bytes: int) -> None:
        """Add to the size of a session; negative to reduce it."""
        self.sizes.add(self._owner(key), size_bytes)

    def over(self, key: str, count: int, size_bytes: int) -> tuple[str, str] | None:
        """Return the setting that forbids so many more sessions and bytes, and the reason in words; None for none."""
        owner = self._owner(key)
        for setting, limit, tally, more in (
            ("session_count", self._count_limit, self.counts, count),
            ("session_bytes", self._bytes_limit, self.sizes, size_bytes),
        ):
            if more and tally.total + more > limit:
                return setting, f"{setting} is {limit}"
            if more and self._shares.users and tally.of(owner) + more > self._shares.of(limit):
                return "user_share_percent", self._shares.describe(setting, limit)
        return None

    def over_connections(self, key: str) -> tuple[str, str] | None:
        """Return the same for one more connection of an owner. All of them together are compared when a socket is
        accepted, before its owner is known."""
        if not self._shares.users or self.connections.of(self._owner(key)) < self._shares.of(
            self._connection_limit
        ):
            return None
        return "user_share_percent", self._shares.describe("connection_count", self._connection_limit)

    def _owner(self, key: str) -> str:
        """Without logins each owner has one session, and there may be a million: only their sum is counted."""
        return self._shares.owner(key) if self._shares.users else ""
