"""Failed logins: whoever fails too often waits.

Counted for each user at each address, so that nobody can lock a user out from somewhere else. What is remembered is
bounded; whoever wants to push an entry out has to fail thousands of logins meanwhile, each as slow as a wrong password.
"""

import hashlib
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mqtt_front.security.settings import LockoutSettings

_ENTRIES_MAX = 10_000
_IPV6_NETWORK_BITS = 64
"""What one customer of a provider has at the least: single addresses mean nothing in IPv6."""


@dataclass(slots=True)
class _Failures:
    count: int
    until_s: float
    """When this is forgotten; while locked, when the lock ends."""
    locked: bool = False


class Lockout:
    """Counts failed logins. Used by any thread: a login that fails counts before the next one is tried."""

    def __init__(self, settings: LockoutSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._entries: OrderedDict[bytes, _Failures] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def left_s(self, user: str | None, address: str) -> float:
        """How long this user at this address has to wait; 0 when a login may be tried."""
        key = _key(user, address)
        with self._lock:
            entry = self._entries.get(key)
            return max(0.0, entry.until_s - self._clock()) if entry is not None and entry.locked else 0.0

    def failed(self, user: str | None, address: str) -> bool:
        """A login failed; True when it was the one that locks."""
        if not self._settings.failures:
            return False
        key = _key(user, address)
        with self._lock:
            return self._failed(key, self._clock())

    def _failed(self, key: bytes, now: float) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None or entry.until_s <= now:
            entry = _Failures(0, 0.0)
        self._entries[key] = entry  # now the newest
        entry.count += 1
        locks = not entry.locked and entry.count >= self._settings.failures
        entry.locked = entry.locked or locks
        if locks or not entry.locked:
            entry.until_s = now + (self._settings.lock_ms if locks else self._settings.within_ms) / 1000
        self._drop_old(now)
        return locks

    def succeeded(self, user: str | None, address: str) -> None:
        """A login succeeded: what failed before were typing errors."""
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
    """A digest: names come from outside and may be 64 KiB long."""
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
