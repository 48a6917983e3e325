"""The way in: what all connections published in one turn of the event loop becomes one draft a log, and one
acknowledgement write a connection once the disk has settled it.

Nothing here waits: drafts go to the engine's committer, which answers through a mailbox. What is not settled
yet is bounded, for each client and for all together (`FairShare`); above the bound a client is not read from, so TCP
slows its publisher.
"""

import errno
import functools
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from mqtt_front.codec.frame import frame_acknowledgements, with_reason
from mqtt_front.errors import MqttError
from mqtt_front.ingest.fair_share import FairShare, Holdable
from mqtt_front.ingest.routing import Router
from mqtt_front.kernel.loops import Gathering
from mqtt_front.kernel.publish_fast_path import Gathered
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import Appended, has_retained
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.throttled_log import Complaints
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import QueueFull, StorageFull, TimestoneError
from timestone.log import Log
from timestone.writing.write_batch import Draft

_PUBREC = 0x50
_NO_LOG = 1 << 32
"""In place of the number of a log: nothing had to be stored."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
PIECE_BYTES = 512 * 1024
"""What was gathered is submitted from this size on, though the turn is not over: the committer writes while the loop
continues reading."""
_FLAGS = bytes(first & 0x07 for first in range(256))
"""RETAIN and QoS stand in a record's flags where they stand in the first byte of a PUBLISH; DUP is not
kept."""


class Source(Holdable, Protocol):
    """A connection that publishes. `Ingest` keeps its `submitted_bytes`."""

    @property
    def level(self) -> int: ...

    exactly_once: bool
    """It publishes at QoS 2 and wants to know about each."""

    def bring(self, topics: list[bytes]) -> bool:
        """Have the router learn topics: see `Publisher`."""

    def admitted(self, count: int) -> None:
        """So many publishes were gathered that are to be acknowledged."""

    def acknowledge(self, data: bytes, count: int) -> None:
        """Send acknowledgements of `count` publishes."""

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        """These publishes are in the log, or, with a reason of failure, never will be. Before `acknowledge`."""

    def refuse(self, message: str) -> None:
        """End the connection: a publish failed, and its protocol has no word for that."""


class _Columns:
    """The records that go into one log, as they gather in a turn: the columns of whole runs, joined at the end."""

    __slots__ = (
        "acknowledged", "count", "data", "flags", "header_lengths", "lengths", "retained", "topic_ids",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.retained = False
        """Some of them are to be retained."""
        self.data: list[bytes] = []
        self.lengths: list[bytes] = []
        self.topic_ids: list[bytes] = []
        self.flags: list[bytes] = []
        self.header_lengths: list[int] | None = None
        self.acknowledged = False

    def add(self, run: Publishes, topic_ids: bytes) -> None:
        """The records of a run, with the id of each one's topic, u32."""
        count = len(run.first_bytes)
        lengths = run.header_lengths
        if not isinstance(lengths, int) or self.header_lengths is not None:
            if self.header_lengths is None:
                self.header_lengths = [0] * self.count
            self.header_lengths += [lengths] * count if isinstance(lengths, int) else lengths
        self.count += count
        self.data.append(run.data)
        self.lengths.append(run.lengths)
        self.topic_ids.append(topic_ids)
        self.flags.append(run.first_bytes.translate(_FLAGS))
        if run.acknowledgements:
            self.acknowledged = True
        self.retained = self.retained or has_retained(run)

    def draft(self) -> Draft:
        flags = b"".join(self.flags)
        same = flags.count(flags[0]) == len(flags)
        return Draft.from_columns(
            b"".join(self.data),
            b"".join(self.lengths),
            np.frombuffer(b"".join(self.topic_ids), np.uint32),
            flags=flags[0] if same else np.frombuffer(flags, np.uint8),
            header_lengths=self.header_lengths or 0,
        )


class _GatheredColumns:
    """The same, of publishes that were gathered."""

    __slots__ = ("_draft", "acknowledged", "count", "retained")

    def __init__(self, gathered: Gathered, draft: Draft) -> None:
        self._draft = draft
        self.count = gathered.record_count
        self.retained = False
        self.acknowledged = any(gathered.answers)

    def draft(self) -> Draft:
        return self._draft


class _Turn:
    """What one turn of the loop submitted, until it is settled."""

    __slots__ = (
        "answers",
        "calls",
        "columns",
        "ends",
        "errors",
        "gathered",
        "open_count",
        "size_bytes",
        "sizes",
        "uneven",
    )

    def __init__(self, gathered: Gathered | None = None, draft: Draft | None = None) -> None:
        self.gathered = gathered
        """All of it, when it was gathered."""
        self.columns: dict[int, Any] = {}
        self.answers: list[tuple[Source, bytes, int]] = []
        """Source, acknowledgements, and the log that the publishes went to, or minus the reason they did not;
        in the order of arrival."""
        self.calls: list[Callable[[], None]] = []
        """What waited for it, and for all before it."""
        self.sizes: dict[Source, int] = {}
        self.size_bytes = 0 if gathered is None else gathered.size_bytes
        self.open_count = 0
        self.errors: dict[int, Exception] = {}
        self.ends: dict[int, int] = {}
        """By log: the offset behind what was appended."""
        self.uneven = False
        """Not every answer is success."""
        if gathered is not None and draft is not None:
            self.columns[gathered.log] = _GatheredColumns(gathered, draft)

    def all_answers(self) -> Iterable[tuple[Source, bytes, int]]:
        """The answers, however they came."""
        if self.gathered is None:
            return self.answers
        log = self.gathered.log
        return [
            (source, answer, log)
            for source, answer in zip(self.gathered.sources, self.gathered.answers, strict=True)
            if answer
        ]

    def all_sources(self) -> Collection[Source]:
        """Who published."""
        return self.sizes if self.gathered is None else self.gathered.sources

    def all_sizes(self) -> Iterable[tuple[Source, int]]:
        """What each source's publishes took on the wire."""
        if self.gathered is None:
            return self.sizes.items()
        return zip(self.gathered.sources, self.gathered.sizes, strict=True)


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
        share_bytes_per_s: int = 4 * 1024 * 1024,
        packet_bytes: int = 1024 * 1024,
        settled: dict[str, int],
        appended: Callable[[Sequence[Appended]], None] = lambda appended: None,
        writing: Callable[[], None] = lambda: None,
        written: Callable[[Log | None, Draft | None, int], None] = lambda log, draft, offset: None,
    ) -> None:
        """`ack` is what an acknowledgement means; the bounds are on unsettled wire bytes, of all and of one
        client; a client that comes up against its own has at least `share_bytes_per_s` beside others. `settled` is
        kept up to date with the offset, by log, below which everything is answered; `appended` is called with what was;
        `writing` and `written` before and after the loop's own thread tries to write, before anybody is answered;
        `written` with a log, a draft and its first offset when it wrote nothing else."""
        self._router = router
        self._loop = loop
        self._complaints = complaints
        self._ack = ack
        self._at_written = ack is Ack.WRITTEN
        self._total_bytes = total_bytes
        self._settled = settled
        self._appended = appended
        self._writing = writing
        self._written = written
        self._mailbox: Mailbox[tuple[_Turn, int, Exception | int]] = Mailbox(loop, self._resolved)
        self._turn: _Turn | None = None
        self._turns: deque[_Turn] = deque()
        self._shares = FairShare(
            loop, total_bytes=total_bytes, client_bytes=client_bytes, share_bytes_per_s=share_bytes_per_s
        )
        self.modest_bytes = self._shares.modest_bytes
        self.room_bytes = total_bytes
        """How much may be gathered in a turn before clients are held."""
        self.gathering = Gathering(router.known, packet_bytes)
        self.gathering.paused = ack is Ack.MEMORY
        self.acknowledge_all: Callable[[list[Gathered]], None] = _acknowledge_each
        """Answers the sources of turns that were gathered and are settled, each once."""
        self.received_count = 0
        self.gathered_count = 0
        """Of these, the ones that were gathered."""
        self.dropped_count = 0
        """Publishes that were refused or could not be stored."""

    @property
    def settled(self) -> bool:
        """Nothing waits for the disk."""
        return self._turn is None and not self._turns and not self.gathering.count

    @property
    def submitted_bytes(self) -> int:
        """Wire bytes of publishes that are not settled, of all clients."""
        return self._total_bytes - self.room_bytes + self.gathering.size_bytes

    def add(
        self, source: Source, run: Publishes, forbidden: Collection[bytes] = (), owner: str | None = None
    ) -> MqttError | None:
        """Take the publishes of one connection, but refuse those to `forbidden` topics, and to new ones beyond
        what their `owner` may bring.
        Returns what is wrong with the first one that has an impossible topic; those before it are taken."""
        codes, fault = self._router.codes(run.topics, forbidden, owner)
        if fault is not None:
            # Topics stand in the order in which they first come.
            run = run.head(run.numbers().index(len(codes)))
        if codes:
            self._take(source, run, codes)
        return fault

    def repeat(self, source: Source, packet_ids: list[bytes]) -> None:
        """Acknowledge publishes at QoS 2 that came before: after all that is not settled yet."""
        answers = frame_acknowledgements(_PUBREC, packet_ids)
        self._open_turn().answers.append((source, answers, _NO_LOG))

    def once_settled(self, then: Callable[[], None]) -> None:
        """Call this when everything that was published so far is settled; at once if it is."""
        if self.settled:
            then()
        else:
            self._open_turn().calls.append(then)

    def refuse(self, source: Source, row: PublishRow, reason: Reason) -> None:
        """Answer a publish that is not appended, and say so in the log."""
        turn = self._open_turn()
        self.received_count += 1
        self._refuse(turn, source, row, -reason)
        if row.acknowledgement:
            turn.answers.append((source, row.acknowledgement, -reason))

    def _refuse(self, turn: _Turn, source: Source, row: PublishRow, code: int) -> None:
        turn.uneven = True
        self.dropped_count += 1
        reason, topic = Reason(-code).name, row.topic[:100].decode("utf-8", "replace")
        self._complaints.warn(f"{reason} {source!r}", f"publish of {source!r} to {topic!r} refused: {reason}")

    def gather(
        self, source: Source, buffer: bytearray, position: int, end: int, level: int, room: int
    ) -> int:
        """Take the publishes at `buffer[position:end]` of a connection that needs no more than that, as far as they are
        plain (`Gathering`), at most `room` at QoS 1. Returns the place behind what was taken; the rest is for `add`."""
        gathering = self.gathering
        if gathering.paused:
            return position
        if not gathering.count:
            self._loop.call_soon(self.flush)
        answers = gathering.answer_count
        behind = gathering.take(source, buffer, position, end, level, room)
        if gathering.answer_count > answers:
            source.admitted(gathering.answer_count - answers)
        self.charged(source)
        if gathering.size_bytes >= PIECE_BYTES:
            self.flush()
        return behind

    def _open_turn(self) -> _Turn:
        if self._turn is None:
            if self.gathering.count:
                self._submit_gathered()
            self._turn = _Turn()
            self.gathering.paused = True  # until what goes the usual way in this turn is submitted
            self._loop.call_soon(self.flush)
        return self._turn

    def _take(self, source: Source, run: Publishes, codes: list[int]) -> None:
        turn = self._open_turn()
        self.received_count += len(run.first_bytes)
        number = codes[0] >> TOPIC_BITS
        if number >= 0 and (
            len(codes) == 1 or min(codes) >> TOPIC_BITS == number == max(codes) >> TOPIC_BITS
        ):
            columns = turn.columns.get(number)
            if columns is None:
                columns = turn.columns[number] = _Columns()
            columns.add(run, _topic_ids(run, codes))
            if run.acknowledgements:
                turn.answers.append((source, run.acknowledgements, number))
        else:
            self._take_mixed(turn, source, run, codes)
        self._charge(turn, source, run.size_bytes)

    def _take_mixed(self, turn: _Turn, source: Source, run: Publishes, codes: list[int]) -> None:
        """One by one: publishes of several logs, or some that are refused."""
        for row, topic_number in zip(run.rows(), run.numbers(), strict=True):
            code = codes[topic_number]
            number = code >> TOPIC_BITS if code >= 0 else code
            if code >= 0:
                columns = turn.columns.get(number)
                if columns is None:
                    columns = turn.columns[number] = _Columns()
                columns.add(Publishes.of([row]), (code & TOPIC_MASK).to_bytes(4, sys.byteorder))
            else:
                self._refuse(turn, source, row, code)
            if row.acknowledgement:
                turn.answers.append((source, row.acknowledgement, number))

    def _charge(self, turn: _Turn, source: Source, size_bytes: int) -> None:
        turn.sizes[source] = turn.sizes.get(source, 0) + size_bytes
        turn.size_bytes += size_bytes
        source.submitted_bytes += size_bytes
        self.room_bytes -= size_bytes
        self.charged(source)

    def charged(self, source: Source) -> None:
        """A source has more on its way to the disk than before: stop reading from it if that is too much."""
        self._shares.check(source, self.submitted_bytes)

    def served(self, source: Source) -> None:
        """The portion of a source that takes turns was read."""
        self._shares.served(source)

    def flush(self) -> None:
        """Submit what has gathered. Called at the end of each turn by itself."""
        if self.gathering.count:
            self._submit_gathered()
        if self._turn is not None:
            turn, self._turn = self._turn, None
            self.gathering.paused = self._ack is Ack.MEMORY
            self._submit(turn)

    def _submit_gathered(self) -> None:
        gathered = self.gathering.finish()
        self.room_bytes -= gathered.size_bytes
        self.received_count += gathered.record_count
        self.gathered_count += gathered.record_count
        if gathered.record_count == 1:
            topic_id = int.from_bytes(gathered.topic_ids, sys.byteorder)
            draft = Draft.single(gathered.data, topic_id, gathered.flags[0])
        else:
            draft = _draft_of(gathered)
        if self._turns or (not self._at_written and any(gathered.answers)):
            self._submit(_Turn(gathered, draft))
        else:
            self._append(gathered, draft)

    def _append(self, gathered: Gathered, draft: Draft) -> None:
        """What was gathered, when nothing came before it and being written is enough. Most of it is appended, delivered
        and acknowledged here and now, without anything to remember."""
        log = self._router.logs[gathered.log]
        outcome: range | Exception | None
        self._writing()
        try:
            outcome = log.append_now(draft)
        except (TimestoneError, OSError) as error:
            outcome = error
        if isinstance(outcome, range):
            self._written(log, draft, outcome.start)
            self._shares.submitted(gathered.sources)
            self.acknowledge_all([gathered])
            self._settled[log.name] = outcome.stop
            for source, size_bytes in zip(gathered.sources, gathered.sizes, strict=True):
                source.submitted_bytes -= size_bytes
            self.room_bytes += gathered.size_bytes
            self._appended([tuple.__new__(Appended, (log.name, outcome, False))])
            self._shares.settled(self._total_bytes - self.room_bytes + self.gathering.size_bytes)
            return
        self._written(None, None, 0)
        turn = _Turn(gathered, draft)
        if outcome is None:
            self._submit(turn, now=False)
        else:
            turn.open_count = 1
            self._turns.append(turn)
            self._resolved([(turn, gathered.log, outcome)])

    def _submit(self, turn: _Turn, *, now: bool = True) -> None:
        """`now`: this thread has not tried to write it yet."""
        self._turns.append(turn)
        self._shares.submitted(turn.all_sources())
        turn.open_count = len(turn.columns)
        outcomes: list[tuple[_Turn, int, Exception | int]] = []
        tried = False
        for number, columns in turn.columns.items():
            level = self._ack if columns.acknowledged and self._ack is not Ack.MEMORY else Ack.WRITTEN
            log, draft = self._router.logs[number], columns.draft()
            if now and not tried:
                tried = True
                self._writing()
            try:
                written = log.append_now(draft) if now and level is Ack.WRITTEN else None
                if written is None:
                    log.submit(draft, ack=level, done=functools.partial(self._done, turn, number))
                else:
                    outcomes.append((turn, number, written.stop))
            except (TimestoneError, OSError) as error:
                outcomes.append((turn, number, error))
        if self._ack is Ack.MEMORY:
            # Accepted is all that this level promises; the drafts are still counted until they are written.
            self._answer([turn])
            turn.answers = []
        if tried:
            self._written(None, None, 0)
        if outcomes or not turn.columns:
            self._resolved(outcomes)

    def _done(self, turn: _Turn, number: int, submission: Submission) -> None:
        """Called by the committer's thread; by this one where the loop itself has failed to write."""
        self._mailbox.put((turn, number, submission.error or submission.offsets.stop))

    def _resolved(self, outcomes: list[tuple[_Turn, int, Exception | int]]) -> None:
        for turn, number, outcome in outcomes:
            turn.open_count -= 1
            if isinstance(outcome, int):
                turn.ends[number] = outcome
            else:
                turn.errors[number] = outcome
                turn.uneven = True
        self._settle()

    def _settle(self) -> None:
        """Answer all turns at the front of the queue that are done: acknowledgements go out in the order of
        arrival."""
        done = []
        while self._turns and self._turns[0].open_count == 0:
            done.append(self._turns.popleft())
        self._answer(done)
        appended: list[Appended] = []
        for turn in done:
            for number, end in turn.ends.items():
                log, columns = self._router.logs[number], turn.columns[number]
                self._settled[log.name] = end
                appended.append(Appended(log.name, range(end - columns.count, end), columns.retained))
            for number, error in turn.errors.items():
                count = turn.columns[number].count
                self.dropped_count += count
                self._complaints.warn(f"failed {number}", f"{count} publishes could not be stored: {error}")
            for source, size_bytes in turn.all_sizes():
                source.submitted_bytes -= size_bytes
            self.room_bytes += turn.size_bytes
            for call in turn.calls:
                call()
        if done:
            self._appended(appended)
        self._shares.settled(self.submitted_bytes)

    def _answer(self, turns: list[_Turn]) -> None:
        """One write a source, regardless of the number of turns."""
        gathered = [turn.gathered for turn in turns if turn.gathered is not None and not turn.uneven]
        if len(gathered) == len(turns):
            self.acknowledge_all(gathered)
            return
        writes: dict[Source, list[bytes]] = {}
        counts: dict[Source, int] = {}
        for turn in turns:
            for source, acknowledgements, number in turn.all_answers():
                reason = _reason(turn, number) if turn.uneven else 0
                if reason == Reason.NOT_AUTHORIZED and source.level < 5:
                    reason = (
                        0  # "a positive acknowledgement, or close" [MQTT-3.3.5-2]; its other topics are fine
                    )
                if source.exactly_once:
                    source.settled(acknowledgements, reason)
                if reason and source.level < 5:
                    source.refuse(f"a publish was refused: {Reason(reason).name}")
                    continue
                answer = with_reason(acknowledgements, reason) if reason else acknowledgements
                writes.setdefault(source, []).append(answer)
                counts[source] = counts.get(source, 0) + len(acknowledgements) // 4
        for source, parts in writes.items():
            source.acknowledge(parts[0] if len(parts) == 1 else b"".join(parts), counts[source])


def _draft_of(gathered: Gathered) -> Draft:
    flags = gathered.flags
    same = flags.count(flags[0]) == len(flags)
    return Draft.from_columns(
        gathered.data,
        gathered.lengths,
        np.frombuffer(gathered.topic_ids, np.uint32),
        flags=flags[0] if same else np.frombuffer(flags, np.uint8),
    )


def _acknowledge_each(turns: list[Gathered]) -> None:
    answers: dict[Source, list[bytes]] = {}
    for gathered in turns:
        for source, answer in zip(gathered.sources, gathered.answers, strict=True):
            if answer:
                answers.setdefault(source, []).append(answer)
    for source, parts in answers.items():
        data = b"".join(parts)
        source.acknowledge(data, len(data) // 4)


def _reason(turn: _Turn, number: int) -> int:
    """The reason code for publishes that went to a log, or did not."""
    if number < 0:
        return -number
    error = turn.errors.get(number)
    if error is None:
        return 0
    full = isinstance(error, StorageFull | QueueFull) or (isinstance(error, OSError) and error.errno in _FULL)
    return Reason.QUOTA_EXCEEDED if full else Reason.IMPLEMENTATION_SPECIFIC_ERROR


def _topic_ids(run: Publishes, codes: list[int]) -> bytes:
    """The topic id of each publish, u32."""
    if len(codes) == 1:  # a device with one topic
        return (codes[0] & TOPIC_MASK).to_bytes(4, sys.byteorder) * len(run.first_bytes)
    ids = np.array([code & TOPIC_MASK for code in codes], dtype=np.uint32)
    return ids[np.frombuffer(run.topic_numbers, dtype=np.uint16)].tobytes()
