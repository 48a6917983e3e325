"""All sessions: who is connected, who will come back, and how both survive the process.

Sessions are saved in one durable transaction for all that changed since the last one, by a thread of their
own: the event loop never waits for the disk.
"""

import functools
import json
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from mqtt_front.feeds.group_store import KEY_PREFIX, Groups
from mqtt_front.feeds.shared_feed import SharedFeed
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.timer_queue import Schedule
from mqtt_front.runtime.write_behind import Documents, WriteBehind
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import (
    UnknownSession,
    encode_session,
    ended_at,
    session_lifetime,
    with_found_receipts,
)
from timestone.disk.json_document import integer, json_object
from timestone.reading import named_readers

SPACE = "mqtt.session"
_CHECKPOINT_KEY = ""
"""No client has an empty id."""
_CHECKPOINT_PERIOD_S = 10.0


class _Stored(NamedTuple):
    document: bytes
    expires_s: float | None
    """By `PassingTime`; None for never."""


class Sessions:
    """The sessions of a front. All methods but `load` belong to the event loop's thread."""

    def __init__(
        self,
        documents: Documents,
        loop: Loop,
        executor: Executor,
        receipts: Receipts,
        *,
        groups: Groups | None = None,
        log: logging.Logger,
        time: PassingTime,
    ) -> None:
        """`groups` are saved together with the sessions, and told when one ends."""
        self._documents = documents
        self._groups = Groups() if groups is None else groups
        self._readers = WriteBehind(documents, named_readers.SPACE, loop, executor, log=log)
        self._receipts = receipts
        self._checkpoint: dict[str, int] = {}
        self._checkpoint_count = 0
        self._checkpoint_s = 0.0
        self._log = log
        self._time = time
        self._writer = WriteBehind(documents, SPACE, loop, executor, log=log)
        self.connected: dict[str, Session] = {}
        """By key."""
        self._away: dict[str, _Stored] = {}
        self._expiries: Schedule[str] = Schedule()
        """By key: when the session of a client that is away ends, by `PassingTime`."""
        self._changed: dict[str, Session] = {}
        self.expired_count = 0
        self.connected_maximum = 0
        """The most that were connected at a time."""

    def __len__(self) -> int:
        return len(self.connected) + len(self._away)

    def __contains__(self, key: str) -> bool:
        return key in self.connected or key in self._away

    def load(self) -> None:
        """Read what an earlier process left, in its documents and in the logs, and note that this is done. Touches the
        disk: call it before the loop serves anybody."""
        now_s = self._time.kept_s()
        documents = self._documents.items(SPACE)
        checkpoint = documents.pop(_CHECKPOINT_KEY, None)
        groups = {key: documents.pop(key) for key in list(documents) if key.startswith(KEY_PREFIX)}
        self._receipts.recover(self._settled(checkpoint))
        written: dict[str, bytes | None] = {_CHECKPOINT_KEY: json.dumps(self._receipts.settled).encode()}
        for key, document in documents.items():
            known = ended_at(with_found_receipts(key, document, self._receipts), now_s)
            if known is not document:
                documents[key] = written[key] = known
        self._documents.put_many(SPACE, written)
        self._checkpoint = dict(self._receipts.settled)
        for key, document in documents.items():
            try:
                self._put_away(key, document)
            except UnknownSession as error:
                self._log.error("session of %r is left alone: %s", key, error)
        logs = {log.name: log for log in self._receipts.logs}
        self._groups.restore(groups, logs.get, self._away, self._log)

    def _settled(self, checkpoint: bytes | None) -> dict[str, int]:
        """By log: sessions know about everything below. Without it the logs are read from their beginnings."""
        if checkpoint is None:
            return {}
        try:
            return {name: integer(offset) for name, offset in json_object(checkpoint).items()}
        except (ValueError, TypeError) as error:
            self._log.error(
                "sessions: how much of each log they know cannot be read: %s; the logs are read from their beginnings",
                error,
            )
            return {}

    def adopt(self, client_id: str, key: str) -> bool:
        """Give the stored session of an anonymous client to the user in `key`; False when there is none, or the user
        has a session with this client id."""
        if client_id not in self._away or key in self:
            return False
        stored = self._away.pop(client_id)
        self._expiries.call_off(client_id)
        self._away[key] = stored
        if stored.expires_s is not None:
            self._expiries.set(key, stored.expires_s)
        self._groups.rename(client_id, key)
        self._save_groups()
        self._writer.write(client_id, None)
        self._writer.write(key, stored.document)
        return True

    def take(self, key: str, restore: Callable[[str, bytes], Session]) -> Session | None:
        """The session that waits for a client, made from its document by `restore`; None when there is none.
        It is no longer among those away; the caller adds it with `connect` or it is gone."""
        stored = self._away.get(key)
        if stored is None:
            return None
        if stored.expires_s is not None and stored.expires_s <= self._time.now_s():
            self.discard(key)
            return None
        del self._away[key]
        self._expiries.call_off(key)
        try:
            return restore(key, stored.document)
        except UnknownSession as error:
            self._log.error("session of %r is lost: %s", key, error)
            return None

    def discard(self, key: str) -> None:
        """Forget the stored session of a client, for good."""
        if self._away.pop(key, None) is not None:
            self._expiries.call_off(key)
            self._end(key)

    def _end(self, key: str) -> None:
        self._groups.session_ended(key)
        self._save_groups()
        self._writer.write(key, None)

    def connect(self, session: Session) -> None:
        """The session's client is connected."""
        self.connected[session.key] = session
        self.connected_maximum = max(self.connected_maximum, len(self.connected))
        if session.expiry_s:  # of one that is to end with this connection, `save` takes the document away
            # At once: the document says when its time is over, and after a kill that must not be counted from before.
            self._writer.write(session.key, self._encoding(session))
            session.documented = True

    def disconnect(self, session: Session) -> None:
        """The session's client is gone: keep what outlives the connection."""
        del self.connected[session.key]
        self._changed.pop(session.key, None)
        if not session.expiry_s:
            if session.documented:
                self._end(session.key)
            else:
                self._groups.session_ended(session.key)
            return
        document = encode_session(session, self._time.kept_s(), self._receipts)
        self._put_away(session.key, document)
        self._save_groups()
        self._writer.write(session.key, document)

    def changed(self, session: Session) -> None:
        """Offsets moved: worth saving with the next `save_changed`."""
        if session.expiry_s:
            self._changed[session.key] = session
            session.documented = True

    def save(self, session: Session, then: Callable[[], None]) -> None:
        """Save now; `then` is called once it is durable, at once for a session that ends with its connection, shares
        nothing and has left nothing on the disk."""
        if session.documented and not session.expiry_s:
            session.documented = False  # after a kill it must not come back: its connection will have ended
            self._save_groups()
            self._writer.write(session.key, None, then)
            return
        shares = any(
            isinstance(feed, SharedFeed) and feed.group in self._groups.changed
            for feed in session.feeds.values()
        )
        if shares:  # in the same transaction: a record at QoS 2 is this session's, or the group's
            self._save_groups(then if not session.expiry_s else None)
        elif not session.expiry_s:
            then()
        if not session.expiry_s:
            return
        session.documented = True
        self._writer.write(session.key, self._encoding(session), then)

    def _encoding(self, session: Session) -> Callable[[], bytes]:
        """What encodes the session of a client that is connected."""
        return functools.partial(encode_session, session, 0, self._receipts)

    def amend(
        self, key: str, restore: Callable[[str, bytes], Session], change: Callable[[Session], None]
    ) -> None:
        """Change the stored session of a client that is away, if there is one."""
        stored = self._away.get(key)
        if stored is None:
            return
        try:
            session = restore(key, stored.document)
        except UnknownSession:
            return  # `take` will say so
        change(session)
        document = encode_session(session, session_lifetime(stored.document).ended_s, self._receipts)
        self._away[key] = _Stored(document, stored.expires_s)
        self._writer.write(key, document)

    def save_changed(self) -> None:
        """Save every session whose offsets moved since the last time."""
        self._save_checkpoint()
        self._save_groups()
        for key, session in self._changed.items():
            self._writer.write(key, self._encoding(session))
        self._changed.clear()

    def expire(self) -> None:
        """Drop the sessions whose time is over."""
        for key in self._expiries.take(self._time.now_s()):
            self.discard(key)
            self.expired_count += 1

    def _put_away(self, key: str, document: bytes) -> None:
        left_s = session_lifetime(document).left_s(self._time.kept_s())
        expires_s = None if left_s is None else self._time.now_s() + left_s
        self._away[key] = _Stored(document, expires_s)
        if expires_s is not None:
            self._expiries.set(key, expires_s)

    def _save_checkpoint(self) -> None:
        """Say, in the same transaction as the sessions, up to where they know about the logs: that far a start need not
        look for packet ids. Now and then is enough while nobody publishes at QoS 2."""
        settled, count, now = dict(self._receipts.settled), self._receipts.count, self._time.now_s()
        if settled == self._checkpoint:
            return
        if count == self._checkpoint_count and now < self._checkpoint_s + _CHECKPOINT_PERIOD_S:
            return
        self._checkpoint, self._checkpoint_count, self._checkpoint_s = settled, count, now
        self._writer.write(_CHECKPOINT_KEY, json.dumps(settled).encode())

    def _save_groups(self, then: Callable[[], None] | None = None) -> None:
        documents, readers = self._groups.changes(int(self._time.wall_s() * 1_000_000))
        for key, document in documents.items():
            self._writer.write(key, document, then)
            then = None
        for key, document in readers.items():
            self._readers.write(key, document)
        if then is not None:  # its group is no more: there is nothing to save
            then()

    @property
    def saved(self) -> bool:
        """Nothing waits to be written; what has to be is on its way."""
        self._save_groups()
        return self._writer.saved and self._readers.saved
