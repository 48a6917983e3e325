"""State of a front, as records of a log: what the store's documents are on a single server, on every replica.

A change is committed when `put_many` returns. All documents are in memory as well; each new leader reads the log. A
change is one record, or several of one write whose last one says so: one that a leader did not finish counts as not
made. From time to time all documents are written again as one change, and what was before it is deleted.

Only the leader uses it: `read` when its generation begins, `put_many` by the threads of the front, and `close` when it
leads no more, from which on nothing is written."""

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from timestone.config import MIB, Ack
from timestone.disk.clock import Clock
from timestone.disk.steady_clock import ClockState, SteadyClock
from timestone.errors import CorruptLog, NotLeader, OffsetOutOfRange, TimestoneError
from timestone.reading import named_readers
from timestone.replication.replicated_log import ReplicatedLog
from timestone.writing.write_batch import WriteBatch

_LOGGER = logging.getLogger("timestone.cluster")
STATE_LOG = "mqtt-state"
STATE_SETTINGS = {"segment_bytes": 8 * MIB}
"""Small segments: what is before the newest snapshot is deleted by whole ones."""
_SNAPSHOT_BYTES = 16 * MIB
"""Least that is written between two snapshots; more where the documents take more."""
_RECORD_BYTES = 256 * 1024
_WRITE_BYTES = 4 * MIB
_FIRST, _LAST, _SNAPSHOT = 1, 2, 4
_PAUSE_S = (0.05, 1.0)


class LocalDocuments(Protocol):
    """Documents of the store on this node."""

    def put_many(self, space: str, items: dict[str, bytes | None]) -> None: ...
    def items(self, space: str) -> dict[str, bytes]: ...


class StateRecord(msgspec.Struct, frozen=True, array_like=True):
    """Payload of a record."""

    flags: int
    """1: the first of its change; 2: the last; 4: of a snapshot, which replaces all there was."""
    passed_us: int
    """Time of the state when it was written, by which sessions and wills end."""
    space: str
    items: dict[str, bytes | None]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(StateRecord)


class StateLog:
    """Documents of a front on the replica that leads. Thread-safe."""

    def __init__(
        self,
        log: ReplicatedLog,
        local: LocalDocuments,
        *,
        snapshot_bytes: int = _SNAPSHOT_BYTES,
        is_patient: bool = True,
    ) -> None:
        """local: for the spaces that concern one node, such as what its retention keeps. is_patient: a write that the
        disk refuses is repeated until it is taken; else the caller gets the error."""
        self._log, self._local, self._is_patient = log, local, is_patient
        self.term = log.term
        """In which alone it may be used: another leader may have written since."""
        self._snapshot_least_bytes = snapshot_bytes
        self._spaces: dict[str, dict[str, bytes]] = {}
        self._size_bytes = self._written_bytes = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._last_us = 0
        self.clock = SteadyClock(Clock(), None)
        """Time that has passed while any node led, as far as the last leader has written it down."""

    def read(self) -> None:
        """Read all documents. Raises CorruptLog for a record that cannot be understood, OSError, CorruptRecord."""
        pending: list[StateRecord] | None = None
        pending_bytes = 0
        position = self._log.start_offset
        while position < self._log.end_offset:
            try:
                batch = self._log.read(position)
            except OffsetOutOfRange as error:  # what stands before a snapshot is deleted at any time
                position, pending = error.start, None
                continue
            for number, payload in enumerate(batch.payloads()):
                try:
                    record = _DECODER.decode(payload)
                except msgspec.MsgspecError as error:
                    reason = f"the state at offset {int(batch.offsets[number])} cannot be read: {error}"
                    raise CorruptLog(self._log.folder, reason) from None
                self._last_us = max(self._last_us, record.passed_us)
                if record.flags & _FIRST:
                    pending, pending_bytes = [], 0
                if pending is None:  # its beginning is deleted
                    continue
                pending.append(record)
                pending_bytes += len(payload)
                if record.flags & _LAST:
                    self._apply(pending)
                    is_snapshot = record.flags & _SNAPSHOT
                    self._written_bytes = 0 if is_snapshot else self._written_bytes + pending_bytes
                    pending = None
            position = batch.next_offset
        clock = Clock()
        now = ClockState(0, self._last_us, clock.uptime_us(), clock.boot_id(), clock.now_us())
        self.clock = SteadyClock(clock, now)

    @property
    def path(self) -> Path:
        """Return where the documents are, for messages."""
        return self._log.folder

    def get(self, space: str, key: str) -> bytes | None:
        """Return a document; None without one."""
        with self._lock:
            return self._spaces.get(space, {}).get(key)

    def items(self, space: str, broken: list[str] | None = None) -> dict[str, bytes]:
        """Return all documents of a space by key."""
        if space == named_readers.SPACE:
            return self._local.items(space)
        with self._lock:
            return dict(self._spaces.get(space, {}))

    def page(self, space: str, after: str, limit: int, text: str = "") -> tuple[dict[str, bytes], str | None]:
        """See `Catalog.page`."""
        found = sorted(item for item in self.items(space).items() if item[0] > after and text in item[0])
        page = dict(found[:limit])
        return page, (found[limit - 1][0] if len(found) > limit else None)

    def put_many(self, space: str, items: Mapping[str, bytes | None]) -> None:
        """Store documents by key; None deletes. All or none, on all in-sync replicas on return: waits for as long as
        that takes. Raises NotLeader once this replica leads no more: the outcome is unknown then."""
        if space == named_readers.SPACE:
            self._local.put_many(space, dict(items))
            return
        with self._lock:
            self._write(self._records(space, items, 0))
            if self._written_bytes >= max(self._snapshot_least_bytes, 2 * self._size_bytes):
                self._snapshot()

    def note_time(self, interval_us: int) -> None:
        """Write down the time, if nothing was written for so long."""
        if self.clock.now_us() - self._last_us >= interval_us:
            self.put_many("", {})

    def close(self) -> None:
        """End what waits and write nothing more. Event-loop thread; does not wait."""
        self._closed.set()

    def _snapshot(self) -> None:
        spaces = [(space, dict(items)) for space, items in self._spaces.items()] or [("", {})]
        pieces = [piece for space, items in spaces for piece in self._records(space, items, _SNAPSHOT)]
        inner = [msgspec.structs.replace(piece, flags=_SNAPSHOT) for piece in pieces]
        inner[0] = msgspec.structs.replace(inner[0], flags=inner[0].flags | _FIRST)
        inner[-1] = msgspec.structs.replace(inner[-1], flags=inner[-1].flags | _LAST)
        first = self._write(inner)
        self._written_bytes = 0
        self._log.expire(first)

    def _records(self, space: str, items: Mapping[str, bytes | None], flags: int) -> list[StateRecord]:
        pieces = list(_pieces(items))
        now_us, last = self.clock.now_us(), len(pieces) - 1
        return [
            StateRecord(flags | _FIRST * (number == 0) | _LAST * (number == last), now_us, space, piece)
            for number, piece in enumerate(pieces)
        ]

    def _write(self, records: list[StateRecord]) -> int:
        """Commit a change, and return the offset of its first record."""
        first, payloads, size_bytes = -1, [], 0
        for record in records:
            payloads.append(_ENCODER.encode(record))
            size_bytes += len(payloads[-1])
            if size_bytes >= _WRITE_BYTES or record is records[-1]:
                begun = self._committed(payloads)
                first = begun if first < 0 else first
                self._written_bytes += size_bytes
                payloads, size_bytes = [], 0
        self._last_us = records[-1].passed_us
        self._apply(records)
        return first

    def _committed(self, payloads: list[bytes]) -> int:
        """Append records, and return the offset of the first one when they are committed."""
        pause_s = _PAUSE_S[0]
        while not self._closed.is_set():
            try:
                return self._log.submit(WriteBatch(payloads), ack=Ack.SYNCED, term=self.term).wait().start
            except (TimestoneError, OSError) as error:
                if not self._is_patient:
                    raise
                # A hand-over that did not take place, a full disk: nothing may pass for durable that is not.
                if not self._closed.wait(pause_s) and not isinstance(error, NotLeader):
                    _LOGGER.error("state of the front waits: %s", error)
                pause_s = min(2 * pause_s, _PAUSE_S[1])
        raise NotLeader(f"another replica of {self._log.folder.name} leads")

    def _apply(self, records: list[StateRecord]) -> None:
        """Take a whole change."""
        if records[0].flags & _SNAPSHOT:
            self._spaces, self._size_bytes = {}, 0
        for record in records:
            space = self._spaces.setdefault(record.space, {})
            for key, document in record.items.items():
                before = space.pop(key, None)
                if before is not None:
                    self._size_bytes -= len(key) + len(before)
                if document is not None:
                    space[key] = document
                    self._size_bytes += len(key) + len(document)


def _pieces(items: Mapping[str, bytes | None]) -> Iterator[dict[str, bytes | None]]:
    """Yield the items in portions of a record each; one empty portion for none."""
    piece: dict[str, bytes | None] = {}
    size_bytes = 0
    for key, document in items.items():
        piece[key] = document
        size_bytes += len(key) + len(document or b"")
        if size_bytes >= _RECORD_BYTES:
            yield piece
            piece, size_bytes = {}, 0
    if piece or not items:
        yield piece
