"""Sessions of browsers, and the one-time key that starts one. In memory only: a restart ends them."""

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ..config import Role

IDLE_S = 30 * 60.0
LONGEST_S = 12 * 3600.0
SESSION_COUNT = 1000
"""Most sessions; a further login ends the one that was idle for longest."""
_BYTES = 32


@dataclass(slots=True)
class Session:
    """A caller: who, with which role."""

    user: str | None
    role: Role
    token: str = ""
    """For the header of a POST; empty for a caller without a cookie."""
    all_payloads: bool = False
    """Whether the caller may read every topic, as one who can read the files may."""
    address: str = ""
    """Of the caller, of a session that of its login."""
    new_id: str | None = None
    """Id that the reply sets as a cookie; empty to remove the cookie."""
    started_s: float = 0.0
    used_s: float = 0.0
    streams: int = 0
    """Open streams of the session."""
    allowance: float = 0.0
    """Requests that it may make at once, as of `counted_s`; see `Gate`."""
    counted_s: float = -1e9
    is_over: bool = False
    """Whether it was ended; see `Sessions.has_ended`."""
    may_read: dict[str, bool] = field(default_factory=dict)
    """Answers of the server about topics, as of `asked_s`; replaced, never cleared: another thread may look."""
    asked_s: float = -1e9


class Sessions:
    """Sessions by the hash of their id. Any thread may call it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds of a steady clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._by_hash: dict[bytes, Session] = {}
        self._keys: set[bytes] = set()

    def new_key(self) -> str:
        """Return a key that starts one session of an operator."""
        key = secrets.token_urlsafe(_BYTES)
        self._keys.add(_hash(key))
        return key

    def take_key(self, key: str) -> bool:
        """Return whether a key is valid; it is used up."""
        with self._lock:
            found = _hash(key)
            if found not in self._keys:
                return False
            self._keys.discard(found)
            return True

    def start(self, session: Session) -> str:
        """Return the id of a new session."""
        now_s, number = self._clock(), secrets.token_urlsafe(_BYTES)
        session.token = secrets.token_urlsafe(_BYTES)
        session.started_s = session.used_s = now_s
        with self._lock:
            if len(self._by_hash) >= SESSION_COUNT:
                self._end_locked(min(self._by_hash, key=lambda one: self._by_hash[one].used_s))
            self._by_hash[_hash(number)] = session
        return number

    def find(self, number: str) -> Session | None:
        """Return the session of an id, used now; None if it has ended."""
        now_s, key = self._clock(), _hash(number)
        with self._lock:
            session = self._by_hash.get(key)
            if session is None:
                return None
            if now_s - session.used_s > IDLE_S or now_s - session.started_s > LONGEST_S:
                self._end_locked(key)
                return None
            session.used_s = now_s
            return session

    def end(self, session: Session) -> None:
        """End a session."""
        with self._lock:
            for key in [key for key, one in self._by_hash.items() if one is session]:
                self._end_locked(key)

    def has_ended(self, session: Session) -> bool:
        """Return whether a session that was started here has ended: what is open for it has to end, too."""
        return session.is_over or (bool(session.token) and self._clock() - session.started_s > LONGEST_S)

    def _end_locked(self, key: bytes) -> None:
        self._by_hash.pop(key).is_over = True


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
