"""Store of all sessions: connected ones, those of absent clients, and both across restarts.

Sessions are saved by a thread, in one durable transaction for all changes since the last one: the event loop never
waits for the disk."""

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
from mqtt_front.runtime.timer_queue import TimerQueue
from mqtt_front.runtime.user_share import Shares
from mqtt_front.runtime.write_behind import WriteBehind
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import (
    UndecodableSession,
    after_restart,
    encode_session,
    session_lifetime,
)
from mqtt_front.sessions.session_use import SessionUse
from timestone.disk.json_document import integer, json_object
from timestone.fronts import Documents
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
    """Sessions of a front. Event-loop thread only, except for `load`."""

    def __init__(
        self,
        documents: Documents,
        loop: Loop,
        executor: Executor,
        receipts: Receipts,
        *,
        groups: Groups | None = None,
        use: SessionUse | None = None,
        log: logging.Logger,
        time: PassingTime,
    ) -> None:
        """`groups` are saved together with the sessions, and told when one ends; `use` counts them."""
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
        """Sessions of connected clients by key."""
        self._away: dict[str, _Stored] = {}
        self._expiries: TimerQueue[str] = TimerQueue()
        """End of the sessions of absent clients by key, by `PassingTime`."""
        self._changed: dict[str, Session] = {}
        self.use = SessionUse(Shares()) if use is None else use
        self.expired_count = 0
        self.connected_maximum = 0
        """Maximum number of connected clients so far."""

    def __len__(self) -> int:
        return len(self.connected) + len(self._away)

    def __contains__(self, key: str) -> bool:
        return key in self.connected or key in self._away

    def load(self) -> None:
        """Read what an earlier process left in its documents and in the logs, and note that this is done. Touches
        the disk: call before the loop serves clients."""
        now_s = self._time.kept_s()
        documents = self._documents.items(SPACE)
        checkpoint = documents.pop(_CHECKPOINT_KEY, None)
        groups = {key: documents.pop(key) for key in list(documents) if key.startswith(KEY_PREFIX)}
        self._receipts.recover(self._settled(checkpoint))
        self._checkpoint = dict(self._receipts.settled)
        written: dict[str, bytes | None] = {_CHECKPOINT_KEY: json.dumps(self._checkpoint).encode()}
        were_away: dict[str, bool] = {}
        for key, document in documents.items():
            known = after_restart(key, document, self._receipts, now_s)
            if known is not document:
                written[key] = known
            try:
                lifetime = session_lifetime(document)
                were_away[key] = lifetime.ended_s > 0
                left_s = (lifetime if known is document else session_lifetime(known)).left_s(now_s)
                self._put_away(key, known, left_s)
            except UndecodableSession as error:
                self._log.error("session of %r is left alone: %s", key, error)
        logs = {log.key: log for log in self._receipts.logs}
        self._groups.restore(groups, logs.get, were_away, self._log)
        shared, readers = self._groups.changes(self._now_us())
        self._documents.put_many(SPACE, {**written, **shared})
        if readers:
            self._documents.put_many(named_readers.SPACE, readers)
        for one in self._groups.take_saving():
            one()

    def _settled(self, checkpoint: bytes | None) -> dict[str, int]:
        """Return the offsets by log below which sessions have all packet ids. Without a checkpoint the logs are read
        from their starts."""
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
        """Give the stored session of an anonymous client to the user in `key`. Return False if there is none, or the
        user has a session with this client id."""
        if client_id not in self._away or key in self:
            return False
        stored = self._away.pop(client_id)
        self._expiries.call_off(client_id)
        self._away[key] = stored
        self.use.remove(client_id, len(stored.document))
        self.use.add(key, len(stored.document))
        if stored.expires_s is not None:
            self._expiries.set(key, stored.expires_s)
        self._groups.rename(client_id, key)
        self.save_groups()
        self._writer.write(client_id, None)
        self._writer.write(key, stored.document)
        return True

    def take(self, key: str, restore: Callable[[str, bytes], Session]) -> Session | None:
        """Remove and return the session that waits for a client, decoded by `restore`; None if there is none. The
        caller adds it with `connect`, or it is gone."""
        stored = self._away.get(key)
        if stored is None:
            return None
        if stored.expires_s is not None and stored.expires_s <= self._time.now_s():
            self.discard(key)
            return None
        del self._away[key]
        self.use.remove(key, len(stored.document))
        self._expiries.call_off(key)
        try:
            return restore(key, stored.document)
        except UndecodableSession as error:
            self._log.error("session of %r is lost: %s", key, error)
            return None

    def discard(self, key: str) -> None:
        """Forget the stored session of a client, for good."""
        if (stored := self._away.pop(key, None)) is not None:
            self.use.remove(key, len(stored.document))
            self._expiries.call_off(key)
            self._end(key)

    def _end(self, key: str) -> None:
        self._groups.session_ended(key)
        self.save_groups()
        self._writer.write(key, None)

    def connect(self, session: Session) -> None:
        """Add the session of a connected client. From its next save (`once_saved`) its document is that of a
        connected one: deliveries count as sent after a kill, and its time has not begun."""
        self.connected[session.key] = session
        session.counted_bytes = session.size_bytes
        self.use.add(session.key, session.counted_bytes)
        self.use.connect(session.key)
        self.connected_maximum = max(self.connected_maximum, len(self.connected))
        if session.expiry_s:
            self._writer.write(session.key, self._encoding(session))
            session.documented = True
        elif session.documented:  # after a kill it must not return: its connection will have ended
            session.documented = False
            self.save_groups()
            self._writer.write(session.key, None)

    def disconnect(self, session: Session) -> None:
        """Remove the session of a disconnected client, and store it if it outlives the connection."""
        del self.connected[session.key]
        self.use.remove(session.key, session.counted_bytes)
        self.use.disconnect(session.key)
        self._changed.pop(session.key, None)
        if not session.expiry_s:
            if session.documented:
                self._end(session.key)
            else:
                self._groups.session_ended(session.key)
            return
        document = encode_session(session, self._time.kept_s(), self._receipts)
        self._put_away(session.key, document, session_lifetime(document).left_s(self._time.kept_s()))
        self.save_groups()
        self._writer.write(session.key, document)

    def resized(self, session: Session) -> None:
        """Subscriptions began or ended: count the session as large as it is now."""
        if self.connected.get(session.key) is session:
            self.use.resize(session.key, session.size_bytes - session.counted_bytes)
            session.counted_bytes = session.size_bytes

    def changed(self, session: Session) -> None:
        """Note moved offsets for the next `save_changed`."""
        if session.expiry_s:
            self._changed[session.key] = session
            session.documented = True

    def save(self, session: Session, then: Callable[[], None]) -> None:
        """Save now. then: called when durable, or at once for a session that ends with its connection and shares
        nothing."""
        shares = any(
            isinstance(feed, SharedFeed) and feed.group in self._groups.changed
            for feed in session.feeds.values()
        )
        if shares:  # in the same transaction: a record at QoS 2 belongs to this session or to the group
            self.save_groups(then if not session.expiry_s else None)
        elif not session.expiry_s:
            then()
        if not session.expiry_s:
            return
        session.documented = True
        self._writer.write(session.key, self._encoding(session), then)

    def is_saved(self, key: str) -> bool:
        """Return whether the disk has everything of a session, its removal included."""
        return self._writer.is_saved(key)

    def once_saved(self, key: str, then: Callable[[], None]) -> None:
        """Call `then` when the disk has everything of a session up to now."""
        self._writer.once_saved(key, then)

    def _encoding(self, session: Session) -> Callable[[], bytes]:
        """Return the encoder of the session of a connected client."""
        return functools.partial(encode_session, session, 0, self._receipts)

    def amend(
        self, key: str, restore: Callable[[str, bytes], Session], change: Callable[[Session], None]
    ) -> None:
        """Change the stored session of an absent client, if there is one."""
        stored = self._away.get(key)
        if stored is None:
            return
        try:
            session = restore(key, stored.document)
        except UndecodableSession:
            return  # `take` will report it
        change(session)
        document = encode_session(session, session_lifetime(stored.document).ended_s, self._receipts)
        self._away[key] = _Stored(document, stored.expires_s)
        self.use.resize(key, len(document) - len(stored.document))
        self._writer.write(key, document)

    def save_changed(self) -> None:
        """Save every session whose offsets moved since the last call."""
        self._save_checkpoint()
        self.save_groups()
        for key, session in self._changed.items():
            self._writer.write(key, self._encoding(session))
        self._changed.clear()

    def expire(self) -> None:
        """Drop expired sessions."""
        for key in self._expiries.take(self._time.now_s()):
            self.discard(key)
            self.expired_count += 1

    def _put_away(self, key: str, document: bytes, left_s: float | None) -> None:
        expires_s = None if left_s is None else self._time.now_s() + left_s
        self._away[key] = _Stored(document, expires_s)
        self.use.add(key, len(document))
        if expires_s is not None:
            self._expiries.set(key, expires_s)

    def _save_checkpoint(self) -> None:
        """Write the checkpoint in the same transaction as the sessions: the offsets below which a start need not
        look for packet ids. Written at intervals between publishes at QoS 2."""
        settled, count, now = dict(self._receipts.settled), self._receipts.count, self._time.now_s()
        if settled == self._checkpoint:
            return
        if count == self._checkpoint_count and now < self._checkpoint_s + _CHECKPOINT_PERIOD_S:
            return
        self._checkpoint, self._checkpoint_count, self._checkpoint_s = settled, count, now
        self._writer.write(_CHECKPOINT_KEY, json.dumps(settled).encode())

    def _now_us(self) -> int:
        return int(self._time.wall_s() * 1_000_000)

    def save_groups(self, then: Callable[[], None] | None = None) -> None:
        """Save now what has changed in groups. then: called when all groups are durable as they are now."""
        documents, readers = self._groups.changes(self._now_us())
        for key, document in documents.items():
            self._writer.write(key, document)
        for key, document in readers.items():
            self._readers.write(key, document)
        for one in self._groups.take_saving():
            self._writer.once_saved(None, one)
        if then is not None:
            self._writer.once_saved(None, then)

    @property
    def saved(self) -> bool:
        """Return whether nothing waits to be written."""
        self.save_groups()
        return self._writer.saved and self._readers.saved
