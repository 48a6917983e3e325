"""Path of publishes into the logs: the publishes of all connections in one turn of the event loop become one write
batch a log, and one write of acknowledgements a connection once the batch is durable as configured.

Nothing here blocks: batches go to the engine's committer, which answers through a mailbox. Unsettled bytes are bounded,
for each client and in total (`FairShare`); above the limit a client is not read from, so TCP slows its publisher."""

import functools
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from time import perf_counter_ns

import numpy as np

from mqtt_front.codec.frame import frame_acknowledgements
from mqtt_front.errors import MqttError
from mqtt_front.ingest.fair_share import FairShare
from mqtt_front.ingest.puback import REPEATED, acknowledge_each, answer_turns
from mqtt_front.ingest.routing import Router
from mqtt_front.ingest.turn import Turn
from mqtt_front.kernel.loops import CollectedTurn, PublishFastPath, discharge
from mqtt_front.kernel.publish_fast_path import PublishColumns, Source
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK
from mqtt_front.protocol.connection import Connection
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.reasons import PUBLISH_REASONS, Reason
from mqtt_front.retained.keeper import Appended
from mqtt_front.runtime.loop import Loop
from mqtt_front.runtime.mailbox import Mailbox
from mqtt_front.runtime.traces import NO_TRACES, Trace, Traces
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import TimestoneError
from timestone.metrics.histogram import Histogram
from timestone.reading.wakeups import Wakeups, Woken
from timestone_access.throttled_log import ThrottledLog

DROP_REASONS = tuple(Reason(code).name.lower() for code in sorted(PUBLISH_REASONS) if Reason(code).is_error)
"""Reasons for dropping a publish; those that never occurred are counted as 0."""
_PUBREC = 0x50
PIECE_BYTES = 512 * 1024
"""From this size on, publishes are submitted before the end of the turn: the committer writes while the loop continues
reading."""

Written = Callable[[list[Woken], int], None]
"""Takes the readers that the loop's own appends have woken, and when the appends began, by `time.perf_counter_ns`."""


class Ingest(CollectedTurn):
    """Collector of publishes, which submits them at the end of a turn. Event-loop thread only."""

    def __init__(
        self,
        router: Router,
        loop: Loop,
        throttled_log: ThrottledLog,
        *,
        ack: Ack,
        total_bytes: int,
        client_bytes: int,
        share_bytes_per_s: int = 4 * 1024 * 1024,
        packet_bytes: int = 1024 * 1024,
        settled: dict[str, int],
        traces: Traces = NO_TRACES,
        appended: Callable[[Sequence[Appended]], None] = lambda appended: None,
        written: Written = lambda readers, began_ns: Wakeups.wake(readers),
    ) -> None:
        """ack: the level at which a publish is acknowledged. The limits apply to unsettled wire bytes, in total and of
        one client; a client over its limit keeps a rate of at least `share_bytes_per_s` beside others. settled: updated
        with the offset, by log, below which everything is answered. appended: called with the appended records.
        written: called after the loop's own thread has tried to write, before any answer; it wakes the readers."""
        self._router = router
        self._loop = loop
        self._complaints = throttled_log
        self._ack = ack
        self._at_written = ack is Ack.WRITTEN
        self._total_bytes = total_bytes
        self._settled = settled
        self._traces = traces
        self._appended = appended
        self._written = written
        self._mailbox: Mailbox[tuple[Turn, int, Exception | int]] = Mailbox(loop, self._resolved)
        self._turn: Turn | None = None
        self._turns: deque[Turn] = deque()
        self._shares = FairShare(
            loop, total_bytes=total_bytes, client_bytes=client_bytes, share_bytes_per_s=share_bytes_per_s
        )
        self.modest_bytes = self._shares.modest_bytes
        self.room_bytes = total_bytes
        """Bytes that may be collected in a turn before clients are paused."""
        self.gathering = PublishFastPath(router.known, packet_bytes)
        self.gathering.paused = ack is Ack.MEMORY
        self.acknowledge_all: Callable[[list[PublishColumns]], None] = acknowledge_each
        """Answers each source of settled turns of the fast path once."""
        self.received_count = 0
        self.gathered_count = 0
        """Those of the fast path."""
        self.dropped = Counter(dict.fromkeys(DROP_REASONS, 0))
        """Publishes that were refused or could not be stored, by reason."""
        self.answer_times = Histogram()
        """Time from the submission of a publish at QoS 1 or 2 until its answer was passed to the socket."""

    @property
    def oldest_s(self) -> float:
        """Age in seconds of the oldest turn that is not settled; 0 without one."""
        return (perf_counter_ns() - self._turns[0].began_ns) / 1e9 if self._turns else 0.0

    @property
    def settled(self) -> bool:
        """Return whether nothing waits for the disk."""
        return self._turn is None and not self._turns and not self.gathering.count

    @property
    def submitted_bytes(self) -> int:
        """Return the wire bytes of unsettled publishes, of all clients."""
        return self._total_bytes - self.room_bytes + self.gathering.size_bytes

    def add(
        self, source: Source, run: Publishes, forbidden: Collection[bytes] = (), owner: str | None = None
    ) -> MqttError | None:
        """Take the publishes of one connection, except those to `forbidden` topics and to new ones beyond what their
        `owner` may create. Return the error of the first one with an invalid topic; those before it are taken."""
        codes, fault = self._router.codes(run.topics, forbidden, owner)
        if fault is not None:
            # Topics are in the order of their first use.
            run = run.head(run.numbers().index(len(codes)))
        if codes:
            self._take(source, run, codes, owner)
        return fault

    def repeat(self, source: Source, packet_ids: list[bytes]) -> None:
        """Answer repeated QoS 2 publishes: after all unsettled ones, so that their result is known."""
        answers = [frame_acknowledgements(_PUBREC, [one]) for one in packet_ids]
        self._open_turn().answers += [(source, answer, REPEATED) for answer in answers]

    def once_settled(self, then: Callable[[], None]) -> None:
        """Call `then` when everything published so far is settled; at once if it is."""
        if self.settled:
            then()
        else:
            self._open_turn().calls.append(then)

    def refuse(self, source: Source, row: PublishRow, reason: Reason, why: str) -> None:
        """Answer a publish that is not appended, and log the reason."""
        turn = self._open_turn()
        self.received_count += 1
        source.publish_count += 1
        self._refuse(turn, source, row, -reason, why)
        if row.acknowledgement:
            turn.answers.append((source, row.acknowledgement, -reason))

    def _refuse(self, turn: Turn, source: Source, row: PublishRow, code: int, why: str = "") -> None:
        turn.uneven = True
        source.refused_count += 1
        reason, topic = Reason(-code).name, row.topic[:100].decode("utf-8", "replace")
        self.dropped[reason.lower()] += 1
        why = f"{reason}, {why}" if why else reason
        self._complaints.warn(f"{reason} {source!r}", f"publish of {source!r} to {topic!r} refused: {why}")

    def gather(
        self, source: Source, connection: Connection, buffer: bytearray, position: int, end: int
    ) -> int:
        """Take publishes at `buffer[position:end]` by the fast path, as far as they are plain (`PublishFastPath`).
        source: a `PolledClient` that `takes_fast_path`. Return the position after them; `add` takes the rest."""
        gathering = self.gathering
        if gathering.paused:
            return position
        if not gathering.count:
            self._loop.call_soon(self.flush)
        answers = gathering.answer_count
        behind = gathering.take(source, buffer, position, end, connection.level, connection.room)
        connection.unacknowledged += gathering.answer_count - answers
        self.charged(source)
        if gathering.size_bytes >= PIECE_BYTES:
            self.flush()
        return behind

    def _open_turn(self) -> Turn:
        if self._turn is None:
            self.flush()
            self._turn = Turn()
            self.gathering.paused = (
                True  # until the publishes of this turn that took the usual path are submitted
            )
            self._loop.call_soon(self.flush)
        return self._turn

    def _take(self, source: Source, run: Publishes, codes: list[int], owner: str | None) -> None:
        turn = self._open_turn()
        self.received_count += len(run.first_bytes)
        source.publish_count += len(run.first_bytes)
        number = codes[0] >> TOPIC_BITS
        if number >= 0 and (
            len(codes) == 1 or min(codes) >> TOPIC_BITS == number == max(codes) >> TOPIC_BITS
        ):
            turn.columns[number].add(run, _topic_ids(run, codes))
            if run.acknowledgements:
                turn.answers.append((source, run.acknowledgements, number))
        else:
            self._take_mixed(turn, source, run, codes, owner)
        turn.sizes[source] = turn.sizes.get(source, 0) + run.size_bytes
        turn.size_bytes += run.size_bytes
        source.submitted_bytes += run.size_bytes
        self.room_bytes -= run.size_bytes
        self.charged(source)

    def _take_mixed(
        self, turn: Turn, source: Source, run: Publishes, codes: list[int], owner: str | None
    ) -> None:
        """Take the publishes of a run one by one: they go to several logs, or some are refused."""
        for row, topic_number in zip(run.rows(), run.numbers(), strict=True):
            code = codes[topic_number]
            number = code >> TOPIC_BITS if code >= 0 else code
            if code >= 0:
                topic_id = (code & TOPIC_MASK).to_bytes(4, sys.byteorder)
                turn.columns[number].add(Publishes.of([row]), topic_id)
            else:
                limit = self._router.limit(row.topic, code, owner)
                self._refuse(turn, source, row, code, limit and f"over {limit}")
            if row.acknowledgement:
                turn.answers.append((source, row.acknowledgement, number))

    def charged(self, source: Source) -> None:
        """Pause a source that has too many unsettled bytes."""
        self._shares.check(source, self.submitted_bytes)

    def served(self, source: Source) -> None:
        """Note that the portion of a source that takes turns was read."""
        self._shares.served(source)

    def _submit_turn(self) -> None:
        turn, self._turn = self._turn, None
        assert turn is not None
        self.gathering.paused = self._ack is Ack.MEMORY
        self._submit(turn)

    def _submit_collected(
        self,
        collected: PublishColumns,
        began_ns: int = 0,
        trace: Trace | None = None,
        error: Exception | None = None,
    ) -> None:
        """Submit a turn of the fast path that this thread has not written, or settle one that failed. began_ns: when it
        has tried."""
        turn = Turn(collected)
        turn.began_ns, turn.trace = began_ns, trace
        if error is None:
            self._submit(turn)
        else:
            turn.open_count = 1
            self._turns.append(turn)
            self._resolved([(turn, collected.log, error)])

    def _follow(self, key: str, offsets: range) -> None:
        """Take appended records without retained ones into account, where others before them are not yet."""
        self._appended([Appended(key, offsets, False)])

    def _submit(self, turn: Turn) -> None:
        tried = turn.began_ns != 0
        if not tried:
            turn.began_ns = perf_counter_ns()
            if turn.began_ns >= self._traces.due_ns and turn.columns:
                turn.trace = self._traces.begin(turn.began_ns)
        self._turns.append(turn)
        self._shares.submitted(turn.all_sizes()[0])
        turn.open_count = len(turn.columns)
        outcomes: list[tuple[Turn, int, Exception | int]] = []
        woken: list[Woken] = []
        for number, columns in turn.columns.items():
            level = self._ack if columns.acknowledged and self._ack is not Ack.MEMORY else Ack.WRITTEN
            log, write_batch = self._router.appendable[number], columns.write_batch()
            try:
                written = None if tried or level is not Ack.WRITTEN else log.append_now(write_batch, woken)
                if written is None:
                    done = functools.partial(self._done, turn, number)
                    log.submit(write_batch, ack=level, done=done, woken=woken)
                else:
                    outcomes.append((turn, number, written.stop))
                    if turn.trace is not None:
                        turn.trace.written(self._router.logs[number], written)
            except (TimestoneError, OSError) as error:
                outcomes.append((turn, number, error))
        if self._ack is Ack.MEMORY:
            # This level promises acceptance only; the batches still count until they are written.
            self._answer([turn])
            turn.answers = []
        if woken:
            self._written(woken, turn.began_ns)
        if outcomes or not turn.columns:
            self._resolved(outcomes)

    def _done(self, turn: Turn, number: int, submission: Submission) -> None:
        """Note the result of a submission. Called by the committer's thread, or by this one if it failed to write."""
        if turn.trace is not None:
            turn.trace.settled(self._router.logs[number], submission)
        self._mailbox.put((turn, number, submission.error or submission.offsets.stop))

    def _resolved(self, outcomes: list[tuple[Turn, int, Exception | int]]) -> None:
        for turn, number, outcome in outcomes:
            turn.open_count -= 1
            if isinstance(outcome, int):
                turn.ends[number] = outcome
            else:
                turn.errors[number] = outcome
                turn.uneven = True
        self._settle()

    def _settle(self) -> None:
        """Answer all settled turns at the front of the queue: acknowledgements are sent in the order of arrival."""
        done = []
        while self._turns and self._turns[0].open_count == 0:
            done.append(self._turns.popleft())
        self._answer(done)
        appended: list[Appended] = []
        for turn in done:
            for number, end in turn.ends.items():
                log, columns = self._router.logs[number], turn.columns[number]
                self._settled[log.key] = end
                appended.append(Appended(log.key, range(end - columns.record_count, end), columns.retained))
            for number, error in turn.errors.items():
                count = turn.columns[number].record_count
                self.dropped[Reason(turn.reason(number)).name.lower()] += count
                self._complaints.warn(f"failed {number}", f"{count} publishes could not be stored: {error}")
            discharge(*turn.all_sizes())
            self.room_bytes += turn.size_bytes
            for call in turn.calls:
                call()
        if done:
            self._appended(appended)
        self._shares.settled(self.submitted_bytes)

    def _answer(self, turns: list[Turn]) -> None:
        """Send the answers of turns, and count how long they took."""
        answer_turns(turns, self.acknowledge_all)
        now_ns = perf_counter_ns()
        for turn in turns:
            if count := sum(len(answer) // 4 for _, answer, _ in turn.all_answers()):
                self.answer_times.observe(now_ns - turn.began_ns, count)
            if turn.trace is not None:
                self._traces.acknowledged(turn.trace, count)


def _topic_ids(run: Publishes, codes: list[int]) -> bytes:
    """Return the topic id of each publish, u32."""
    if len(codes) == 1:  # usual for a device
        return (codes[0] & TOPIC_MASK).to_bytes(4, sys.byteorder) * len(run.first_bytes)
    ids = np.array([code & TOPIC_MASK for code in codes], dtype=np.uint32)
    return ids[np.frombuffer(run.topic_numbers, dtype=np.uint16)].tobytes()
