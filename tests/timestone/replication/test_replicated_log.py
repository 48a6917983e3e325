"""A log that is a replica: two ends, appends of a leader, cuts, and what survives a crash."""

import errno
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import RecordingFiles
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, StepClock
from tests.support.waiting import TIMEOUT_S, wait_for
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, recorded, replicated, ship, submitted
from timestone.config import Ack
from timestone.errors import CorruptLog, InvalidName, NotLeader, OffsetOutOfRange, StoreClosed
from timestone.replication.replicated_log import GenerationRun, ReplicatedLog
from timestone.store import Store
from timestone.writing.segment_writer import REPLICA_RESERVE_OFFSETS
from timestone.writing.write_batch import WriteBatch


def test_append_is_refused_when_the_replica_does_not_lead(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        with pytest.raises(NotLeader, match="does not lead"):
            log.append(b"x")
        log.lead(1)
        submitted(log, b"x")
        log.follow()
        with pytest.raises(NotLeader):
            submitted(log, b"y")
        assert log.written_offset == 1


def test_records_are_invisible_and_unacknowledged_until_they_are_shown(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        one, two = submitted(log, b"a", b"b"), submitted(log, b"c")
        reader = log.reader()
        assert (log.end_offset, log.written_offset, log.synced_offset) == (0, 3, 3)
        assert (len(log), payloads(log), reader.offset) == (0, [], 0)
        with pytest.raises(OffsetOutOfRange):
            log.record(0)
        assert not one.resolved
        log.show(2)
        assert (one.wait(0), two.resolved, payloads(log)) == (range(2), False, [b"a", b"b"])
        with pytest.raises(OffsetOutOfRange):
            log.record(2)
        assert log.offset_at(1 << 62) == 2
        log.show(3)
        assert (two.wait(0), payloads(log)) == (range(2, 3), [b"a", b"b", b"c"])


def test_parked_reader_wakes_when_records_are_shown_and_not_before(tmp_path: Path) -> None:
    woken: list[int] = []

    class Waiter:
        def wake(self, first_offset: int) -> None:
            woken.append(first_offset)

    with replicated(tmp_path) as log:
        log.lead(1)
        waiter = Waiter()
        log.wakeups.register(waiter, None)
        with log.wakeups.lock:
            log.wakeups.park(waiter)
        submitted(log, b"a")
        assert woken == []
        log.show(1)
        assert woken == [0]


def test_waiting_append_fails_when_another_replica_leads(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        waiting = submitted(log, b"a")
        log.follow()
        with pytest.raises(NotLeader, match="may be in the log or not"):
            waiting.wait(0)
        log.lead(2)
        log.show(1)
        assert isinstance(waiting.error, NotLeader)


def test_waiting_append_fails_when_the_log_is_closed(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        waiting = submitted(log, b"a")
        assert not waiting.resolved
    with pytest.raises(NotLeader, match="may be in the log or not"):
        waiting.wait(0)


def test_waiting_append_fails_when_the_log_is_deleted(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        waiting = submitted(log, b"a")
        log.sync()
        log._store.delete_log(log.name)  # type: ignore[attr-defined]
        with pytest.raises(StoreClosed, match="log telemetry-0 was deleted"):
            waiting.wait(0)
        assert not log.leads


@pytest.mark.parametrize("append", ["append", "append_many"])
def test_append_at_written_waits_for_the_other_replicas(tmp_path: Path, append: str) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        log.submit(WriteBatch([b"first"], log.topic_id("t")), ack=Ack.SYNCED)
        log.sync()
        log.show(1)
        payload = b"x" if append == "append" else [b"x"]
        with ThreadPoolExecutor(1) as executor:
            appended = executor.submit(getattr(log, append), payload, topic="t", ack="written")
            wait_for(lambda: log.written_offset == 2)
            log.sync()
            assert (log.end_offset, appended.done()) == (1, False)
            log.show(2)
            assert appended.result(TIMEOUT_S) in (1, range(1, 2))
        log.follow()
        with pytest.raises(NotLeader):
            getattr(log, append)(payload, topic="t", ack="written")


def test_queued_append_is_refused_when_another_replica_has_led_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic ids are those of the earlier term."""
    with replicated(tmp_path) as log:
        log.lead(1)
        with monkeypatch.context() as patch:  # as while the disk is slow
            patch.setattr(log._commit, "append_inline", lambda *given: None)
            patch.setattr(log._commit, "write_queued", lambda: None)
            queued = log.submit(WriteBatch([b"late"], log.topic_id("mine")), ack=Ack.SYNCED)
            log.follow()
            log.append_replica(2, 0, *shipped_record(tmp_path / "other", b"theirs", "theirs"), 0, ["theirs"])
            log.lead(3)
        log.sync()
        log.show(log.written_offset)
        assert [(record.topic, bytes(record.payload)) for record in log] == [("theirs", b"theirs")]
        with pytest.raises(NotLeader, match="may be in the log or not"):
            queued.wait(0)


def shipped_record(folder: Path, payload: bytes, topic: str) -> tuple[bytes, bytes]:
    """Return entry and bytes of a record as a leader ships it."""
    with replicated(folder) as other:
        other.lead(2)
        submitted(other, payload, topic=topic)
        found = other.read_stored(0, 1, max_bytes=100)
        return found.entries, found.data


def test_replica_has_the_same_records_times_and_generations(tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as one, replicated(tmp_path / "b") as two:
        for generation in (1, 5):
            one.lead(generation)
            for number in range(20):
                submitted(one, b"%d" % number, b"x" * number, topic=f"t/{number % 7}")
            ship(one, two, generation, max_bytes=30)
        for log in (one, two):
            log.show(80)
        assert list(one) == list(two)
        assert [record.timestamp_us for record in one] == [record.timestamp_us for record in two]
        assert one.topics.names() == two.topics.names()
    with replicated(tmp_path / "b") as two:
        assert two.generations() == (GenerationRun(1, 0, 0), GenerationRun(5, 40, 7))
        assert (two.end_offset, two.names_count, two.epoch >> 32) == (80, 7, 5)


@pytest.mark.parametrize("cut_at", [0, 3, 5, 6, 8])
def test_cut_removes_records_and_names_and_the_log_goes_on(cut_at: int, tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as one, replicated(tmp_path / "b") as two:
        one.lead(1)
        for number in range(5):
            submitted(one, b"a%d" % number, topic=f"a/{number}")
        ship(one, two, 1)
        two.lead(2)  # writes three records that the next leader does not have
        for number in range(3):
            submitted(two, b"b%d" % number, topic=f"b/{number}")
        two.follow()
        two.cut(cut_at, min(cut_at, 5 + 3))
        two.topics.keep(two.names_count)
        assert (two.written_offset, two.names_count, two.synced_offset) == (cut_at, cut_at, cut_at)
        if cut_at <= 5:
            one.lead(3)
            submitted(one, b"c", topic="c")
            ship(one, two, 3)
            two.show(6)
            assert payloads(two) == [b"a0", b"a1", b"a2", b"a3", b"a4", b"c"]
            assert two.topics.names() == one.topics.names()
    with replicated(tmp_path / "b") as two:
        assert two.written_offset == (6 if cut_at <= 5 else cut_at)
        assert list(two.topics.names()) == [record.topic for record in two] or cut_at > 5


def test_filter_matches_no_record_of_another_topic_when_its_name_was_cut(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        reader, pattern = log.reader(topics="old"), log.reader(topics="old/#")
        submitted(log, b"known", topic="known")
        log.show(1)
        submitted(log, b"never committed", topic="old")
        assert not reader.read()
        assert not pattern.read()
        log.follow()
        log.cut(1, 1)
        log.lead(2)
        submitted(log, b"other", topic="new")
        submitted(log, b"mine", topic="old")
        log.show(3)
        assert [bytes(one.payload) for one in reader.read()] == [b"mine"]
        assert [bytes(one.payload) for one in pattern.read()] == [b"mine"]


def test_generation_whose_first_append_has_failed_is_not_that_of_the_last_record(tmp_path: Path) -> None:
    files = FaultyFiles()
    with (
        replicated(tmp_path / "source") as source,
        Store(tmp_path / "data", crash_config(), files=files, log_type=ReplicatedLog) as store,
    ):
        source.lead(1)
        submitted(source, b"0")
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog)
        ship(source, log, 1)
        source.lead(2)
        submitted(source, b"1")
        fault = files.fail("pwrite", errno.ENOSPC, path=".segment", forever=True)
        with pytest.raises(OSError, match="No space left"):
            ship(source, log, 2)
        assert (log.last_generation, log.generations()) == (1, (GenerationRun(1, 0, 0),))
        fault.lift()
        ship(source, log, 2)
        assert log.generations() == source.generations() == (GenerationRun(1, 0, 0), GenerationRun(2, 1, 1))


def test_cut_of_shown_records_is_refused(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a", b"b")
        log.show(1)
        with pytest.raises(ValueError, match="were shown"):
            log.cut(0, 0)
        with pytest.raises(ValueError, match="were shown"):
            log.reset(0)


def test_reset_begins_the_log_at_another_offset(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a")
        log.reset(50)
        assert (log.start_offset, log.end_offset, log.written_offset, log.names_count) == (50, 50, 50, 0)
    with replicated(tmp_path) as log:
        assert (log.start_offset, log.end_offset, log.written_offset) == (50, 50, 50)
        log.lead(2)
        submitted(log, b"b")
        log.show(51)
        assert [record.offset for record in log] == [50]


@pytest.mark.parametrize(
    "wrong", ["offset", "names", "bytes", "torn", "topic", "time", "name twice", "bad name", "none"]
)
def test_records_that_no_leader_sends_are_refused_without_a_change(wrong: str, tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as one, replicated(tmp_path / "b") as two:
        one.lead(1)
        submitted(one, b"abc", b"def")
        first, _, entries, data, *_ = one.read_stored(0, 2, max_bytes=100)
        names, names_first = ["t"], 0
        match wrong:
            case "offset":
                first = 1
            case "names":
                names_first = 1
            case "bytes":
                data = b"abX" + data[3:]
            case "torn":
                entries = entries[:-1]
            case "topic":
                names = []
            case "time":
                entries = entries[:8] + bytes(8) + entries[16:]
            case "name twice":
                names = ["t", "t"]
            case "bad name":
                names = ["a/#"]
            case "none":
                entries, data = b"", b""
        with pytest.raises((ValueError, InvalidName)):
            two.append_replica(1, first, entries, data, names_first, names)
        assert two.written_offset == 0
        ship(one, two, 1)
        two.show(2)
        assert payloads(two) == [b"abc", b"def"]


def test_replicated_log_is_opened_only_as_one(tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as log:
        log.lead(1)
        submitted(log, b"a")
    with pytest.raises(CorruptLog, match="is a replica of a cluster"):
        timestone.open(tmp_path / "a")
    with timestone.open(tmp_path / "b") as store:
        store.log("telemetry").append(b"a")
    with pytest.raises(CorruptLog, match="is not a replica"), replicated(tmp_path / "b"):
        pass


def test_view_ends_at_the_committed_offset(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a", b"b", b"c")
        view = timestone.view(tmp_path).log("telemetry")
        assert (view.end_offset, list(view), len(view)) == (0, [], 0)
        log.show(2)
        assert view.refresh() == 2
        assert [bytes(record.payload) for record in view] == [b"a", b"b"]
        assert (len(view), len(log)) == (2, 2)
        behind = log.segment_list.segments[0].timestamp_at(2) + 1
        assert (view.offset_at(behind), log.offset_at(behind)) == (2, 2)
        log.roll()
        log.seal_rolled()
        assert log.acknowledge(3)
        assert (log.end_offset, view.refresh()) == (3, 2)
        log.note_committed()
        assert view.refresh() == 3
        assert not log.acknowledge(3), "nothing new"
    assert timestone.view(tmp_path).log("telemetry").end_offset == 3


@pytest.mark.slow
def test_power_loss_leaves_a_beginning_of_the_log_and_no_gap_whatever_was_under_way(tmp_path: Path) -> None:
    """Append, ship, cut, and begin generations; then at each operation the power fails: what is left is a beginning of
    what was written before or after the step, has all that was flushed, and continues where it ends."""
    rng = random.Random("power")
    with replicated(tmp_path / "a") as one:
        files = RecordingFiles(tmp_path / "b")
        two_store = recorded(tmp_path / "b", files)
        two = two_store.log("telemetry")
        assert isinstance(two, ReplicatedLog)
        states: list[tuple[int, list[bytes], int]] = []

        def note() -> None:
            states.append((len(files.operations), content(two), two.synced_offset))

        for generation in (1, 3, 5):
            one.lead(generation)
            for number in range(10):
                submitted(one, b"%d %d" % (generation, number), topic=f"{generation}/{number % 4}")
            ship(one, two, generation, max_bytes=40)
            note()
            two.lead(generation + 1)
            for number in range(5):
                submitted(two, b"own %d" % number, topic=f"own/{number}")
            note()
            two.follow()
            two.cut(one.written_offset, one.names_count)
            note()
        operations = list(files.operations)
        two_store.close()
    disk = Disk(files)
    for number, operation in enumerate(operations):
        disk.apply(number, operation)
        if number % 7:
            continue
        image = tmp_path / "image"
        disk.image(rng, rng.choice(list(Loss))).write(image)
        before = [state for state in states if state[0] <= number + 1]
        after = [state for state in states if state[0] > number]
        possible = [content for _, content, _ in (*before[-1:], *after[:1])]
        if (image / "catalog.db").exists():
            with Store(
                image, crash_config(), clock=StepClock(boot_id=NEXT_BOOT_ID), log_type=ReplicatedLog
            ) as store:
                log = store.log("telemetry")
                assert isinstance(log, ReplicatedLog)
                found = content(log)
                assert log.is_whole, number
                assert any(found == whole[: len(found)] for whole in possible), (number, found)
                durable = min((state[2] for state in (*before[-1:], *after[:1])), default=0)
                assert not before or len(found) >= durable, (number, found)
                log.lead(9)
                submitted(log, b"next", topic="next")
                assert content(log) == [*found, b"next"]
        shutil.rmtree(image, ignore_errors=True)


def content(log: ReplicatedLog) -> list[bytes]:
    """Return the payloads of all that is written, shown or not."""
    found: list[bytes] = []
    while len(found) < log.written_offset:
        stored = log.read_stored(len(found), log.written_offset, max_bytes=0)
        found.append(stored.data)
    return found


def test_append_is_acknowledged_without_a_flush_when_the_level_is_written(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.level = Ack.WRITTEN
        log.lead(1)
        submission = log.submit(WriteBatch([b"x"]), ack=Ack.SYNCED)
        wait_for(lambda: log.written_offset == 1)
        assert (log.acknowledged_offset, log.synced_offset) == (1, 0)
        log.show(1)
        submission.wait()
        assert log.flush_later()


def test_offsets_get_no_record_below_the_one_from_which_a_leader_is_to_continue(tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as one, replicated(tmp_path / "b") as other:
        one.lead(1)
        submitted(one, b"a")
        one.lead(2, 100_000)
        one.follow()
        one.lead(3, 100_000)  # which changes nothing
        submitted(one, b"b")
        ship(one, other, 2)
        for log in (one, other):
            log.show(100_001)
            assert [(record.offset, bytes(record.payload)) for record in log] == [(0, b"a"), (100_000, b"b")]
            log.seal_rolled()  # the length leaves out what a sealed segment says is empty
            assert len(log) == 2
            assert log.read(5).next_offset == 100_001
            log.roll()
            log.seal_rolled()
    for name in "ab":
        with replicated(tmp_path / name) as log:
            assert log.is_whole
            assert [(record.offset, bytes(record.payload)) for record in log] == [(0, b"a"), (100_000, b"b")]


def test_shown_records_are_cut_when_they_were_given_up(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a", b"b", b"c")
        log.follow()
        log.show(3)
        log.cut(1, 1, is_given_up=True)
        assert (payloads(log), log.end_offset, log.written_offset) == ([b"a"], 1, 1)
        log.lead(2, 10)
        submitted(log, b"d")
        log.show(11)
        assert [(record.offset, bytes(record.payload)) for record in log] == [(0, b"a"), (10, b"d")]


def test_ceiling_is_known_for_good_when_the_machine_was_booted_again(tmp_path: Path) -> None:
    def opened(boot_id: bytes) -> Store:
        return Store(tmp_path, crash_config(), clock=StepClock(boot_id=boot_id), log_type=ReplicatedLog)

    def killed(store: Store) -> None:
        copy = tmp_path.with_name("copy")
        shutil.copytree(tmp_path, copy)
        store.close()
        shutil.rmtree(tmp_path)
        copy.rename(tmp_path)

    store = opened(BOOT_ID)
    leading(store, 3)
    killed(store)
    store = opened(BOOT_ID)
    assert leading(store, 1).ceiling == 3
    killed(store)
    for _ in range(2):
        with opened(NEXT_BOOT_ID) as store:
            log = store.log("telemetry")
            assert isinstance(log, ReplicatedLog)
            assert (log.written_offset, log.ceiling) == (4, 3 + REPLICA_RESERVE_OFFSETS)
