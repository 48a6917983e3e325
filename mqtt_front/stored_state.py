"""Stored state: what clients find again after a restart, from sessions to wills. Event-loop thread only, except for
`load`."""

import logging

from mqtt_front.ingest import topic_use
from mqtt_front.ingest.routing import Router
from mqtt_front.retained.keeper import Retaining
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.threads import Threads
from mqtt_front.runtime.write_behind import WriteBehind
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_document import decode_session
from mqtt_front.sessions.session_store import Sessions
from mqtt_front.sessions.session_use import SessionUse
from mqtt_front.settings import MqttSettings
from mqtt_front.wills.will_records import WillRecords
from mqtt_front.wills.wills import Publish, Wills
from timestone.disk.steady_clock import SteadyClock
from timestone.fronts import Documents


class StoredState:
    """Sessions, QoS 2 receipts, retained messages, wills, and the use of topics by owner."""

    def __init__(
        self,
        router: Router,
        documents: Documents,
        loop: Loop,
        settings: MqttSettings,
        publish_will: Publish,
        *,
        threads: Threads,
        steady: SteadyClock,
        will_grace_s: float = 0.0,
        log: logging.Logger,
    ) -> None:
        self._router = router
        self._documents = documents
        self._settings = settings
        self._log = log
        self.time = PassingTime(steady=steady)
        self.receipts = Receipts(router.logs, is_partitioned=router.partitions is not None)
        shares = router.shares
        self.sessions = Sessions(
            documents,
            loop,
            threads.save,
            self.receipts,
            groups=router.groups,
            use=SessionUse(shares, settings.session_count, settings.session_bytes, settings.connection_count),
            log=log,
            time=self.time,
        )
        self.retaining = Retaining(
            router.own,
            documents,
            loop,
            threads.save,
            threads.read,
            count_limit=settings.retained_count,
            bytes_limit=settings.retained_bytes,
            log=log,
            time=self.time,
            shares=shares,
            others=router.others,
        )
        self.wills = Wills(
            publish_will,
            WillRecords(router),
            documents,
            loop,
            threads.save,
            log=log,
            time=self.time,
            shares=shares,
            bytes_limit=settings.will_bytes,
            grace_s=will_grace_s,
        )
        self._topic_writer = WriteBehind(documents, topic_use.SPACE, loop, threads.save, log=log)

    def load(self) -> None:
        """Read what an earlier process left. Touches the disk: call before the loop serves clients."""
        self._router.topic_use.restore(self._documents.items(topic_use.SPACE), self._log)
        self.sessions.load()
        self.retaining.load()
        self.wills.load()

    def save(self) -> None:
        """Start saving changes. Called at intervals, and until `saved` when the front stops."""
        self.sessions.save_changed()
        self.retaining.save()
        for owner, document in self._router.topic_use.changes().items():
            self._topic_writer.write(owner, document)

    @property
    def saved(self) -> bool:
        """Return whether nothing waits to be written."""
        documents = (self.sessions, self.wills, self.retaining, self._topic_writer)
        return all(one.saved for one in documents) and not self._router.topic_use.changed

    def tick(self) -> None:
        """End what has expired, and publish wills that are due."""
        self.time.look()
        self.sessions.expire()
        self._router.groups.expire(self.time, self._settings.queue_expiry_s)
        self.wills.publish_due()
        self.retaining.expire()

    def settled(self, key: str, packet_ids: list[int], *, stored: bool) -> None:
        """Note that publishes of a session at QoS 2 are in the log, or failed. Its client may be absent by now, or
        connected again."""

        def change(session: Session) -> None:
            if stored:
                session.unsettled.difference_update(packet_ids)
            else:
                session.forget_received(packet_ids)

        session = self.sessions.connected.get(key)
        if session is None:
            self.sessions.amend(key, self.restore, change)
        else:
            change(session)
            self.sessions.changed(session)

    def restore(self, key: str, document: bytes) -> Session:
        """Decode a stored session. Raises UndecodableSession."""
        router = self._router
        return decode_session(key, document, router.source, router.sources, self.receipts)
