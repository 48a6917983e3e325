"""The way in: what all connections published in one turn of the event loop becomes one draft a log, and one
acknowledgement write a connection once the disk has settled it.

Nothing here waits: drafts go to the engine's committer, which answers through a mailbox. What is not settled
yet is bounded, for each client and for all together; above the bound a client is not read from, so TCP slows
its publisher.
"""

import errno
import functools
from collections import deque
from collections.abc import Collection
from typing import Protocol

import numpy as np

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.codec.reasons import Reason
from mqtt_front.complaints import Complaints
from mqtt_front.errors import MqttError
from mqtt_front.events import Publishes
from mqtt_front.loop import Loop
from mqtt_front.mailbox import Mailbox
from mqtt_front.routing import TOPIC_BITS, TOPIC_MASK, Router
from timestone.config import Ack
from timestone.draft import Draft
from timestone.errors import StorageFull, TimestoneError
from timestone.submission import Submission

_PUBACK = 0x40
_PUBREC = 0x50
_QOS2 = bytes((0x34, 0x35, 0x3C, 0x3D))
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FLAGS = bytes(first & 0x07 for first in range(256))
"""RETAIN and QoS stand in a record's flags where they stand in the first byte of a PUBLISH; DUP is not
kept."""


class Source(Protocol):
    """A connection that publishes."""

    submitted_bytes: int
    """Wire bytes of its publishes that are not settled. Kept by `Ingest`."""

    @property
    def level(self) -> int: ...
    def acknowledge(self, data: bytes, count: int) -> None:
        """Send acknowledgements of `count` publishes."""

    def refuse(self, message: str) -> None:
        """End the connection: a publish failed, and its protocol has no word for that."""

    def hold(self) -> None:
        """Stop reading until `release`."""

    def release(self) -> None: ...


class _Columns:
    """The records that go into one log, as they gather in a turn."""

    __slots__ = ("acknowledged", "flags", "header_lengths", "payloads", "topic_ids")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.topic_ids: list[int] = []
        self.flags = bytearray()
        self.header_lengths: list[int] | None = None
        self.acknowledged = False

    def add(self, run: Publishes, topic_ids: list[int]) -> None:
        if run.header_lengths or self.header_lengths is not None:
            lengths = run.header_lengths or [0] * len(run.payloads)
            assert isinstance(lengths, list)
            if self.header_lengths is None:
                self.header_lengths = [0] * len(self.payloads)
            self.header_lengths += lengths
        self.payloads += run.payloads
        self.topic_ids += topic_ids
        self.flags += run.first_bytes.translate(_FLAGS)
        if run.packet_ids:
            self.acknowledged = True

    def draft(self) -> Draft:
        first = self.flags[0]
        flags = first if self.flags.count(first) == len(self.flags) else np.frombuffer(self.flags, np.uint8)
        return Draft(self.payloads, self.topic_ids, flags=flags, header_lengths=self.header_lengths or 0)


class _Turn:
    """What one turn of the loop submitted, until it is settled."""

    __slots__ = ("answers", "columns", "errors", "open_count", "sizes", "uneven")

    def __init__(self) -> None:
        self.columns: dict[int, _Columns] = {}
        self.answers: list[tuple[Source, int, list[bytes], int]] = []
        """Source, first byte of the answer, packet ids, and the log they went to, or minus the reason they
        did not; in the order of arrival."""
        self.sizes: dict[Source, int] = {}
        self.open_count = 0
        self.errors: dict[int, Exception] = {}
        self.uneven = False
        """Not every answer is success."""


class Ingest:
    """Collects publishes and submits them. Used by the event loop's thread only."""

    def __init__(
        self,
        router: Router,
        loop: Loop,
        complaints: Complaints,
        *,
        ack: Ack,
        total_bytes: int,
        client_bytes: int,
    ) -> None:
        """`ack` is what an acknowledgement means; the bounds are on unsettled wire bytes, of all and of one
        client."""
        self._router = router
        self._loop = loop
        self._complaints = complaints
        self._ack = ack
        self._total_bytes = total_bytes
        self._client_bytes = client_bytes
        self._mailbox: Mailbox[tuple[_Turn, int, Exception | None]] = Mailbox(loop, self._resolved)
        self._turn: _Turn | None = None
        self._turns: deque[_Turn] = deque()
        self._held: dict[Source, None] = {}
        self.submitted_bytes = 0
        self.received_count = 0
        self.dropped_count = 0
        """Publishes that were refused or could not be stored."""

    @property
    def settled(self) -> bool:
        """Nothing waits for the disk."""
        return self._turn is None and not self._turns

    def add(
        self, source: Source, run: Publishes, forbidden: Collection[bytes] = ()
    ) -> MqttError | None:
        """Take the publishes of one connection, but refuse those to `forbidden` topics. Returns what is wrong with
        the first one that has an impossible topic; those before it are taken."""
        codes, fault = self._router.codes(run.topics, forbidden)
        if fault is not None:
            run = run.head(len(codes))
        if codes:
            self._take(source, run, codes)
        return fault

    def _take(self, source: Source, run: Publishes, codes: list[int]) -> None:
        turn = self._turn
        if turn is None:
            turn = self._turn = _Turn()
            self._loop.call_soon(self.flush)
        self.received_count += len(codes)
        number = codes[0] >> TOPIC_BITS
        one_log = len(codes) == 1 or min(codes) >> TOPIC_BITS == number == max(codes) >> TOPIC_BITS
        if not one_log or number < 0 or (run.packet_ids and _has_qos2(run)):
            self._take_mixed(turn, source, run, codes)
        else:
            columns = turn.columns.get(number)
            if columns is None:
                columns = turn.columns[number] = _Columns()
            columns.add(run, [code & TOPIC_MASK for code in codes] if number else codes)
            if run.packet_ids:
                turn.answers.append((source, _PUBACK, run.packet_ids, number))
        self._charge(turn, source, run.size_bytes)

    def _take_mixed(self, turn: _Turn, source: Source, run: Publishes, codes: list[int]) -> None:
        """One by one: publishes of several logs, refused ones, or of QoS 2 between others."""
        lengths = run.header_lengths
        packet_ids = iter(run.packet_ids)
        for at, (code, first) in enumerate(zip(codes, run.first_bytes, strict=True)):
            ids = [next(packet_ids)] if first & 6 else []
            number = code >> TOPIC_BITS if code >= 0 else code
            if code >= 0:
                single = Publishes(
                    bytes((first,)),
                    [],
                    [run.payloads[at]],
                    0 if isinstance(lengths, int) or not lengths[at] else [lengths[at]],
                    ids,
                    0,
                )
                columns = turn.columns.get(number)
                if columns is None:
                    columns = turn.columns[number] = _Columns()
                columns.add(single, [code & TOPIC_MASK])
            else:
                turn.uneven = True
                self.dropped_count += 1
                reason, topic = Reason(-code).name, run.topics[at][:100]
                self._complaints.warn(f"{reason} {source!r}", f"publish of {source!r} to {topic!r} refused: {reason}")
            if ids:
                turn.answers.append((source, _PUBREC if first & 6 == 4 else _PUBACK, ids, number))

    def _charge(self, turn: _Turn, source: Source, size_bytes: int) -> None:
        turn.sizes[source] = turn.sizes.get(source, 0) + size_bytes
        source.submitted_bytes += size_bytes
        self.submitted_bytes += size_bytes
        over = source.submitted_bytes > self._client_bytes or self.submitted_bytes > self._total_bytes
        if over and source not in self._held:
            self._held[source] = None
            source.hold()

    def flush(self) -> None:
        """Submit what has gathered. Called at the end of each turn by itself."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._turns.append(turn)
        turn.open_count = len(turn.columns)
        for number, columns in turn.columns.items():
            level = self._ack if columns.acknowledged and self._ack is not Ack.MEMORY else Ack.WRITTEN
            done = functools.partial(self._done, turn, number)
            try:
                self._router.logs[number].submit(columns.draft(), ack=level, done=done)
            except TimestoneError as error:
                self._mailbox.put((turn, number, error))
        if self._ack is Ack.MEMORY:
            # Accepted is all that this level promises; the drafts are still counted until they are written.
            self._answer([turn])
            turn.answers = []
        if not turn.columns:
            self._settle()

    def _done(self, turn: _Turn, number: int, submission: Submission) -> None:
        """Called by the committer's thread."""
        self._mailbox.put((turn, number, submission.error))

    def _resolved(self, outcomes: list[tuple[_Turn, int, Exception | None]]) -> None:
        for turn, number, error in outcomes:
            turn.open_count -= 1
            if error is not None:
                turn.errors[number] = error
                turn.uneven = True
        self._settle()

    def _settle(self) -> None:
        """Answer all turns at the front of the queue that are done: acknowledgements go out in the order of
        arrival."""
        done = []
        while self._turns and self._turns[0].open_count == 0:
            done.append(self._turns.popleft())
        self._answer(done)
        for turn in done:
            for number, error in turn.errors.items():
                count = len(turn.columns[number].payloads)
                self.dropped_count += count
                self._complaints.warn(f"failed {number}", f"{count} publishes could not be stored: {error}")
            for source, size_bytes in turn.sizes.items():
                source.submitted_bytes -= size_bytes
                self.submitted_bytes -= size_bytes
        if self._held:
            self._release()

    def _release(self) -> None:
        """Read again from those whose bytes are half settled: not at the bound, where each message would
        toggle it."""
        if self.submitted_bytes > self._total_bytes // 2:
            return
        for source in [one for one in self._held if one.submitted_bytes <= self._client_bytes // 2]:
            del self._held[source]
            source.release()

    def _answer(self, turns: list[_Turn]) -> None:
        """One write a source, whatever the number of turns."""
        writes: dict[Source, list[bytes]] = {}
        counts: dict[Source, int] = {}
        for turn in turns:
            for source, first, packet_ids, number in turn.answers:
                reason = _reason(turn, number) if turn.uneven else 0
                if reason == Reason.NOT_AUTHORIZED and source.level < 5:
                    reason = 0  # "a positive acknowledgement, or close" [MQTT-3.3.5-2]; its other topics are fine
                if reason and source.level < 5:
                    source.refuse(f"a publish was refused: {Reason(reason).name}")
                    continue
                writes.setdefault(source, []).append(frame_acknowledgements(first, packet_ids, reason))
                counts[source] = counts.get(source, 0) + len(packet_ids)
        for source, parts in writes.items():
            source.acknowledge(parts[0] if len(parts) == 1 else b"".join(parts), counts[source])


def _reason(turn: _Turn, number: int) -> int:
    """The reason code for publishes that went to a log, or did not."""
    if number < 0:
        return -number
    error = turn.errors.get(number)
    if error is None:
        return 0
    full = isinstance(error, StorageFull) or (isinstance(error, OSError) and error.errno in _FULL)
    return Reason.QUOTA_EXCEEDED if full else Reason.IMPLEMENTATION_SPECIFIC_ERROR


def _has_qos2(run: Publishes) -> bool:
    return len(run.first_bytes.translate(None, _QOS2)) < len(run.first_bytes)
