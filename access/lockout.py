"""Lockout after failed logins.

Counted for each user at each address, so that a user cannot be locked out from another address, and by all fronts of a
server together: each of them does not give another ten tries. The memory is bounded; evicting an entry takes thousands
of failed logins, each as slow as a wrong password."""

import hashlib
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from timestone_access.settings import LockoutSettings

_ENTRIES_MAX = 10_000
_IPV6_NETWORK_BITS = 64
"""Minimum size of the network of one customer of a provider: single IPv6 addresses mean nothing."""


@dataclass(slots=True)
class _Failures:
    count: int
    until_s: float
    """End of this entry; while locked, the end of the lock."""
    locked: bool = False


class FailedLogins:
    """Failed logins by user and address, oldest first. Under `lock`."""

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, _Failures] = OrderedDict()
        self.lock = threading.Lock()


_shared: WeakKeyDictionary[object, FailedLogins] = WeakKeyDictionary()
_shared_lock = threading.Lock()


def failed_logins(store: object) -> FailedLogins:
    """Return the failed logins that the fronts of a store have in common."""
    with _shared_lock:
        return _shared.setdefault(store, FailedLogins())


class Lockout:
    """Limit of one front on failed logins. Thread-safe: a failed login counts before the next one is tried."""

    def __init__(
        self,
        settings: LockoutSettings,
        clock: Callable[[], float] = time.monotonic,
        failed: FailedLogins | None = None,
    ) -> None:
        """failed: those to count on; none of before unless given."""
        self._settings = settings
        self._clock = clock
        found = failed or FailedLogins()
        self._entries, self._lock = found.entries, found.lock

    def __len__(self) -> int:
        return len(self._entries)

    def left_s(self, user: str | None, address: str) -> float:
        """Return the seconds that this user at this address has to wait; 0 if a login may be tried."""
        if not self._settings.failures:
            return 0.0
        key = _key(user, address)
        with self._lock:
            entry = self._entries.get(key)
            return max(0.0, entry.until_s - self._clock()) if entry is not None and entry.locked else 0.0

    def failed(self, user: str | None, address: str) -> bool:
        """Count a failed login; return True if it locks the user out."""
        if not self._settings.failures:
            return False
        key = _key(user, address)
        with self._lock:
            return self._failed(key, self._clock())

    def _failed(self, key: bytes, now: float) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None or entry.until_s <= now:
            entry = _Failures(0, 0.0)
        self._entries[key] = entry  # moved to the end as the newest
        entry.count += 1
        locks = not entry.locked and entry.count >= self._settings.failures
        entry.locked = entry.locked or locks
        if locks or not entry.locked:
            entry.until_s = now + (self._settings.lock_ms if locks else self._settings.within_ms) / 1000
        self._drop_old(now)
        return locks

    def succeeded(self, user: str | None, address: str) -> None:
        """Reset the count after a successful login."""
        if self._entries:
            key = _key(user, address)
            with self._lock:
                self._entries.pop(key, None)

    def _drop_old(self, now: float) -> None:
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if oldest.until_s > now and len(self._entries) <= _ENTRIES_MAX:
                return
            self._entries.popitem(last=False)


def _key(user: str | None, address: str) -> bytes:
    """Return a digest as the key: names come from clients and may have 64 KiB."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        pass
    else:
        if isinstance(parsed, ipaddress.IPv6Address):
            network = ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False)
            address = str(parsed.ipv4_mapped or network)
    name = b"" if user is None else b"u" + user.encode()
    return hashlib.blake2b(name, key=address.encode()[:64], digest_size=16).digest()
