"""Shares of the limits over all clients that one owner may use.

Each limit of the server is for all clients together. So that no client can use it up for the others, an owner gets a
part of it: `user_share_percent`. Connections and client ids cost an attacker nothing, so with logins the owner is the
user, and all anonymous clients together are one more. Without logins it is the client id: that proves nothing, but
keeps a faulty client from taking what the others need.
"""

from collections import Counter


class Shares:
    """Owners, and the part of a limit that each may use."""

    def __init__(self, percent: int = 100, *, users: bool = False) -> None:
        """`users`: clients can log in, so that their users tell them apart."""
        self.percent = percent
        self.users = users

    def owner(self, session_key: str) -> str:
        """Return the owner of a session: U+0000 and the user, or for anonymous clients the empty string; on a server
        without logins the client id."""
        client_id, separator, user = session_key.partition("\0")
        if separator:
            return separator + user
        return "" if self.users else client_id

    def of(self, limit: int) -> int:
        """Return the part of a limit that one owner may have: at least 1."""
        return max(1, limit * self.percent // 100)

    def describe(self, setting: str, limit: int) -> str:
        """Return the reason for a refusal: which share of which limit is used up."""
        return f"user_share_percent is {self.percent} of {setting} ({limit})"


class Tally:
    """Total of a quantity, and the part of each owner."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: Counter[str] = Counter()

    def of(self, owner: str) -> int:
        """Return the part of an owner."""
        return self._of.get(owner, 0)

    def add(self, owner: str, amount: int = 1) -> None:
        """Add `amount`, which may be negative, to the part of an owner."""
        self.total += amount
        self._of[owner] += amount
        if not self._of[owner]:
            del self._of[owner]  # owners come and go: client ids cost nothing
