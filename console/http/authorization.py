"""The header Authorization of scripts: user and password, checked by the server, remembered for a minute."""

import asyncio
import base64
import binascii
import hashlib
import time
from collections.abc import Callable

from ..problems import Problem
from .sessions import Session

KEPT_S = 60.0
_KEPT_COUNT = 100

LoggedIn = Callable[[str, str, str], Session]
"""Takes user, password and address; raises Problem."""


class Authorization:
    """Sessions of scripts. Event-loop thread only."""

    def __init__(self, logged_in: LoggedIn) -> None:
        self._logged_in = logged_in
        self._kept: dict[bytes, tuple[float, Session]] = {}

    async def session(self, header: str, address: str) -> Session:
        """Return the session for a header. Raises Problem."""
        user, password = _parsed(header)
        key = hashlib.sha256(header.encode("latin-1")).digest()
        now_s = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now_s - kept[0] < KEPT_S:
            kept[1].used_s = now_s
            return kept[1]
        session = await asyncio.to_thread(self._logged_in, user, password, address)
        session.used_s = now_s
        if len(self._kept) >= _KEPT_COUNT:
            del self._kept[min(self._kept, key=lambda one: self._kept[one][0])]
        self._kept[key] = now_s, session
        return session


def _parsed(header: str) -> tuple[str, str]:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        raise Problem("login-failed", "expected Authorization: Basic")
    try:
        user, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Problem("login-failed", "invalid header Authorization") from None
    if not colon:
        raise Problem("login-failed", "invalid header Authorization")
    return user, password
