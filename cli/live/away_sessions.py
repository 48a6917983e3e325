"""Stored sessions of MQTT clients for the console: read from the catalogue, a page at a time, also without a server."""

from collections.abc import Iterator
from typing import Any

from mqtt_front.sessions.session_document import UndecodableSession, describe_session
from mqtt_front.sessions.session_store import SPACE
from timestone.disk.clock import Clock
from timestone.disk.steady_clock import ClockState, SteadyClock
from timestone.upkeep import retention
from timestone.view import StoreView

_BEFORE = "\0\U0010ffff"
"""Behind the keys of the space that are none of sessions, before those of sessions."""


class AwaySessions:
    """Stored sessions of one store. Usable from any thread."""

    def __init__(self, view: StoreView) -> None:
        self._view = view

    def page(self, after: str, limit: int, text: str) -> tuple[list[dict[str, Any]], str | None]:
        """Return sessions behind a key, by client id, and the key to continue behind; None at the end. text: part of
        the client id or user. Those of connected clients are among them, with `away_s` null. Raises OSError,
        CorruptLog."""
        found, following = self._view.page(SPACE, after or _BEFORE, limit, text)
        return list(self._described(found)), following

    def of(self, client: str, user: str | None) -> dict[str, Any] | None:
        """Return the session of a client; without a user, the first one with its id. Raises as `page`."""
        if user is None:
            document = self._view.document(SPACE, client)
            if document is None:
                following, _ = self._view.page(SPACE, client + "\0", 1, "")
                found = {key: value for key, value in following.items() if key.startswith(client + "\0")}
            else:
                found = {client: document}
        else:
            document = self._view.document(SPACE, f"{client}\0{user}")
            found = {} if document is None else {f"{client}\0{user}": document}
        return next(self._described(found), None)

    def _described(self, documents: dict[str, bytes]) -> Iterator[dict[str, Any]]:
        now_s = self._now_s()
        for key, document in documents.items():
            try:
                one = describe_session(key, document)
            except UndecodableSession:
                continue  # its client gets a new one
            away_s = max(0.0, now_s - one["ended_s"]) if one["ended_s"] else None
            yield one | {"key": key, "away_s": away_s, "size_bytes": len(document)}

    def _now_s(self) -> float:
        """Return the time of the store: of now, or of its last note if the machine was started since."""
        try:
            state = ClockState.decode(self._view.document(retention.SPACE, retention.CLOCK_KEY) or b"")
        except (ValueError, TypeError):
            return 0.0
        return SteadyClock(Clock(), state).now_us() / 1e6
