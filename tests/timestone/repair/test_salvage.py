"""Salvage copies every verified record with offset, time, topic and headers, invents none, and does not change the
original."""

import errno
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.specimen import FOLDER, INDEX, LOG_NAME, Specimen, make_specimen
from tests.support.step_clock import StepClock
from timestone import LogConfig, NotAStore, Record, StoreLocked
from timestone.repair.inspection import EXIT_CLEAN, EXIT_CORRUPT, inspect_store
from timestone.repair.salvage import REPORT_NAME, salvage_store
from timestone.repair.salvage_report import EXIT_LOSSES, EXIT_NOTHING, EXIT_WHOLE, LogSalvage, SalvageReport

ROUNDS = rounds(40, "TIMESTONE_SALVAGE_ROUNDS")


def records(root: Path) -> dict[int, Record]:
    with timestone.view(root) as view:
        return {record.offset: record for record in view.log(LOG_NAME).reader()}


class Patient:
    """A store as files, salvaged."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.source, self.target = place / "source", place / "target"

    def salvage(self, specimen: Specimen) -> LogSalvage:
        self.report = self._salvage(specimen)
        (log,) = self.report.logs
        return log

    def _salvage(self, specimen: Specimen) -> SalvageReport:
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.rmtree(self.target, ignore_errors=True)
        specimen.write(self.source)
        before = {path: path.read_bytes() for path in self.source.rglob("*") if path.is_file()}
        report = salvage_store(self.source, self.target, clock=StepClock())
        assert {path: path.read_bytes() for path in self.source.rglob("*") if path.is_file()} == before
        nameless = any(log.topic_names_lost for log in report.logs)
        found = inspect_store(self.target, deep=True).exit_code
        assert found == (EXIT_CORRUPT if nameless else EXIT_CLEAN), (
            "names that are lost stay lost, and that is said"
        )
        assert json.loads((self.target / REPORT_NAME).read_text()) == json.loads(json.dumps(report.to_json()))
        return report


@pytest.fixture
def patient(quick_directory: Path) -> Patient:
    return Patient(quick_directory)


def specimen(place: Path, *, closed: bool = True, count: int = 40, unsynced: int = 0) -> Specimen:
    config = LogConfig(segment_entries=10)
    return make_specimen(place / "made", closed=closed, count=count, unsynced=unsynced, config=config)


def lost_offsets(log: LogSalvage) -> set[int]:
    return {offset for loss in log.lost for offset in range(loss.first, loss.end)}


@pytest.mark.parametrize("closed", [True, False])
def test_sound_store_is_copied_whole(patient: Patient, closed: bool) -> None:
    sound = specimen(patient.place, closed=closed)
    log = patient.salvage(sound)
    assert records(patient.target) == sound.records
    assert (log.records, log.lost, log.notes, log.from_aside, log.later_count) == (40, (), (), 0, 0)
    assert log.saved == ((0, 40),)
    assert patient.report.exit_code == EXIT_WHOLE
    if closed:
        assert log.end_offset == 40
    with timestone.open(patient.target) as store:
        assert store.recoveries == ()
        assert store.log(LOG_NAME).append(b"continues") == log.end_offset
    with timestone.view(patient.source) as old, timestone.view(patient.target) as new:
        assert old.log(LOG_NAME).id == new.log(LOG_NAME).id


def test_headers_are_copied(patient: Patient) -> None:
    sound = specimen(patient.place)
    patient.salvage(sound)
    assert any(record.headers for record in records(patient.target).values())


def test_settings_sessions_and_named_readers_are_copied(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        log = store.log("a", config=LogConfig(retention_bytes=12345))
        log.append_many([b"1", b"2", b"3"])
        log.reader(name="billing").commit(2)
        store.documents.put_many("mqtt", {"device": b"session"})
    report = salvage_store(quick_directory / "a", quick_directory / "b")
    assert report.exit_code == EXIT_WHOLE
    with timestone.open(quick_directory / "b") as store:
        assert store.log("a").config.retention_bytes == 12345
        assert store.log("a").reader(name="billing").offset == 2
        assert store.documents.items("mqtt") == {"device": b"session"}


def test_store_without_a_catalogue_loses_its_content_and_reports_it(patient: Patient) -> None:
    sound = specimen(patient.place).without(Path("catalog.db"))
    patient.salvage(sound)
    assert records(patient.target) == sound.records
    assert patient.report.exit_code == EXIT_LOSSES
    assert "named readers are lost" in patient.report.notes[0]


def test_damaged_catalogue_costs_no_record(patient: Patient) -> None:
    sound = specimen(patient.place)
    patient.salvage(sound.changed(Path("catalog.db"), lambda data: b"rubbish!" + data[8:]))
    assert records(patient.target) == sound.records
    assert patient.report.exit_code == EXIT_LOSSES
    assert "the catalogue cannot be read" in patient.report.notes[0]


def test_segment_without_its_index_is_lost_with_its_offsets(patient: Patient) -> None:
    sound = specimen(patient.place)
    log = patient.salvage(sound.without(FOLDER / f"{10:020d}.index"))
    assert lost_offsets(log) == set(range(10, 20))
    assert log.lost[0].reason == "the index is missing"
    assert "segment 10 has no index" in log.notes[0]
    assert records(patient.target) == {at: one for at, one in sound.records.items() if not 10 <= at < 20}


def test_index_without_its_segment_saves_the_empty_records(patient: Patient) -> None:
    sound = specimen(patient.place)
    log = patient.salvage(sound.without(FOLDER / f"{10:020d}.segment"))
    assert lost_offsets(log) == set(range(10, 20))
    assert log.lost[0].reason == "the segment file is missing"


def test_missing_pair_between_two_segments_is_reported_as_lost(patient: Patient) -> None:
    damaged = (
        specimen(patient.place).without(FOLDER / f"{10:020d}.segment").without(FOLDER / f"{10:020d}.index")
    )
    log = patient.salvage(damaged)
    assert lost_offsets(log) == set(range(10, 20))
    assert log.lost[0].reason == "it is in no file"
    assert patient.report.exit_code == EXIT_LOSSES


def test_offsets_left_out_by_a_power_loss_are_not_a_loss(quick_directory: Path) -> None:
    root = quick_directory / "a"
    for boot in (b"first boot......", b"second boot.....", b"third boot......"):
        store = timestone.open(root, ack="written", clock=StepClock(boot_id=boot))
        store.log("a").append_many([b"1", b"2"])
        left = quick_directory / "left"
        shutil.copytree(root, left)
        store.close()
        shutil.rmtree(root)
        left.rename(root)
    report = salvage_store(root, quick_directory / "b")
    assert report.exit_code == EXIT_WHOLE
    assert [end - first for first, end in report.logs[0].saved] == [2, 2, 2]


def test_lost_topic_names_cost_no_record(patient: Patient) -> None:
    sound = specimen(patient.place)
    log = patient.salvage(sound.without(FOLDER / "topics"))
    found = records(patient.target)
    assert {at: one.payload for at, one in found.items()} == {
        at: one.payload for at, one in sound.records.items()
    }
    assert {one.topic for one in found.values()} == {None}
    assert (log.topic_names_lost, patient.report.exit_code) == (3, EXIT_LOSSES)


def test_dictionary_with_a_damaged_header_still_names_its_topics(patient: Patient) -> None:
    sound = specimen(patient.place)
    log = patient.salvage(sound.changed(FOLDER / "topics", lambda data: b"\xff" * 512 + data[512:]))
    assert records(patient.target) == sound.records
    assert "the header of the topic dictionary is damaged" in log.notes[0]


def test_dictionary_of_another_log_is_rejected(patient: Patient) -> None:
    sound, other = specimen(patient.place), specimen(patient.place)
    log = patient.salvage(sound.with_file(FOLDER / "topics", other.files[FOLDER / "topics"]))
    assert {at: one.payload for at, one in records(patient.target).items()} == {
        at: one.payload for at, one in sound.records.items()
    }
    assert "another log's" in log.notes[0]


def test_log_is_not_saved_when_no_file_identifies_it(patient: Patient) -> None:
    damaged = specimen(patient.place)
    for path in damaged.files:
        if path.suffix == ".index" or path.name == "topics":
            damaged = damaged.changed(path, lambda data: bytes(len(data)))
    log = patient.salvage(damaged)
    assert "no file has the identity of the log" in log.error
    assert patient.report.exit_code == EXIT_NOTHING


def test_quarantined_records_are_saved_when_they_verify(quick_directory: Path) -> None:
    """A power loss took a page out of the middle of the data that was not yet durable: recovery cuts there, by its
    rules. The records behind it are undamaged."""
    made = make_specimen(quick_directory / "made", closed=False, count=30, unsynced=20)
    segment = FOLDER / f"{0:020d}.segment"
    start = sum(len(one.payload) for at, one in made.records.items() if at < 15)

    def tear(data: bytes) -> bytes:
        return data[: start + 40] + bytes(30) + data[start + 70 :]

    source = quick_directory / "source"
    made.changed(segment, tear).write(source)
    with timestone.open(source, clock=StepClock(boot_id=b"another boot....")) as store:
        kept = store.log(LOG_NAME).segment_list.segments[0].count
        assert 10 < kept < 29
        after = store.log(LOG_NAME).append(b"appended since")
    assert list((source / FOLDER).glob("*.lost"))
    report = salvage_store(source, quick_directory / "target")
    (log,) = report.logs
    found = records(quick_directory / "target")
    assert log.from_aside > 0
    assert found.pop(after).payload == b"appended since"
    assert found == {at: one for at, one in made.records.items() if at in found}
    assert 25 < len(found) < 30
    assert log.end_offset > after


def test_newer_record_wins_over_a_quarantined_one_at_its_offset(quick_directory: Path) -> None:
    """After a mere kill -9 nothing that was shown is missing, so recovery gives the offsets of a torn tail again."""
    made = make_specimen(quick_directory / "made", closed=False, count=10)
    index = FOLDER / f"{0:020d}.index"
    source = quick_directory / "source"
    made.write(source)
    whole = (source / index).read_bytes()
    tail, data = whole[4096 + 32 * 6 :], made.files[FOLDER / f"{0:020d}.segment"]
    shutil.rmtree(source)
    with timestone.open(source, ack="written") as store:
        log = store.log(LOG_NAME)
        log.append_many([b"new %d" % number for number in range(8)])
        log_id = log.id
    # The pieces of the other log prove nothing here.
    (source / FOLDER / f"{0:020d}.index.lost").write_bytes(tail)
    (source / FOLDER / f"{0:020d}.segment.lost").write_bytes(data)
    report = salvage_store(source, quick_directory / "target")
    assert (report.logs[0].id, report.logs[0].records, report.logs[0].from_aside) == (log_id, 8, 0)
    # A quarantined copy of the log's own files verifies records that are in place already.
    for suffix in ("index", "segment"):
        path = source / FOLDER / f"{0:020d}.{suffix}"
        shutil.copy(path, path.with_name(path.name + ".lost.2"))
    report = salvage_store(source, quick_directory / "target 2")
    assert (report.logs[0].records, report.logs[0].from_aside, report.exit_code) == (8, 0, EXIT_WHOLE)


def test_store_with_an_owner_is_refused(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append(b"1")
        with pytest.raises(StoreLocked):
            salvage_store(quick_directory / "a", quick_directory / "b")
    assert not (quick_directory / "b").exists()


def test_target_is_refused_when_it_exists_or_lies_inside_the_store(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append(b"1")
    for inside in (
        quick_directory / "a",
        quick_directory / "a" / "b",
        quick_directory / "x" / ".." / "a" / "b",
    ):
        with pytest.raises(ValueError, match="expected a path outside of"):
            salvage_store(quick_directory / "a", inside)
    (quick_directory / "b").mkdir()
    with pytest.raises(FileExistsError):
        salvage_store(quick_directory / "a", quick_directory / "b")
    with pytest.raises(NotAStore):
        salvage_store(quick_directory / "b", quick_directory / "c")
    with pytest.raises(NotAStore):
        salvage_store(quick_directory / "nothing", quick_directory / "c")


def test_full_disk_leaves_no_half_copy_under_the_name(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append_many([b"1", b"2"])
    files = FaultyFiles()
    files.fail("pwrite", errno.ENOSPC, path=".segment")
    with pytest.raises(OSError, match="No space left"):
        salvage_store(quick_directory / "a", quick_directory / "b", files=files)
    assert not (quick_directory / "b").exists()
    with pytest.raises(FileExistsError, match=r"b\.partial"):
        salvage_store(quick_directory / "a", quick_directory / "b")


def test_bad_sectors_are_named(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append_many([bytes([number]) * 3000 for number in range(10)])
    files = FaultyFiles()
    read = files.inner.pread

    def pread(fd: int, length_bytes: int, position: int) -> bytes:
        if position <= 9000 < position + length_bytes and files._paths[fd].endswith(".segment"):
            raise OSError(errno.EIO, "bad sector")
        return read(fd, length_bytes, position)

    files.inner.pread = pread  # type: ignore[method-assign]
    report = salvage_store(quick_directory / "a", quick_directory / "b", files=files)
    (log,) = report.logs
    assert lost_offsets(log) == {2, 3, 4}
    assert "1 pages of 4 KiB could not be read" in log.notes[-1]
    assert report.exit_code == EXIT_LOSSES


def test_progress_goes_to_the_end(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append_many([b"1", b"2"])
    seen: list[tuple[str, int, int]] = []
    salvage_store(quick_directory / "a", quick_directory / "b", progress=lambda *one: seen.append(one))
    assert seen[-1][0] == "a-0"
    assert 0 < seen[-1][1] <= seen[-1][2]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def damage(rng: random.Random, sound: Specimen) -> tuple[Specimen, dict[Path, set[int]]]:
    """Something bad happens to some of the files; for each, the bytes that are not what they were."""
    bad: dict[Path, set[int]] = {}
    damaged = sound
    for _ in range(rng.randint(1, 4)):
        path = rng.choice([one for one in damaged.files if one.parent == FOLDER])
        data = bytearray(damaged.files[path])
        kind = rng.choice(["flip", "flip", "zero", "noise", "cut", "remove"])
        if not data:
            continue
        start = rng.randrange(len(data))
        end = min(len(data), start + rng.choice([1, 20, 512]))
        if kind == "flip":
            end = start + 1
            data[start] ^= 1 << rng.randrange(8)
        elif kind == "zero":
            data[start:end] = bytes(end - start)
        elif kind == "noise":
            data[start:end] = rng.randbytes(end - start)
        else:
            end = len(data)
        if kind == "remove":
            start, damaged = 0, damaged.without(path)
        elif kind == "cut":
            damaged = damaged.changed(path, lambda _, cut=bytes(data[:start]): cut)  # type: ignore[misc]
        else:
            damaged = damaged.changed(path, lambda _, now=bytes(data): now)  # type: ignore[misc]
        bad.setdefault(path, set()).update(range(start, end))
    return damaged, bad


def provable(sound: Specimen, bad: dict[Path, set[int]]) -> set[int]:
    """The offsets whose entry and bytes nothing has touched."""
    found = set()
    for base in sorted(int(path.stem) for path in sound.files if path.suffix == ".index"):
        index, segment = FOLDER / f"{base:020d}.index", FOLDER / f"{base:020d}.segment"
        for offset in range(base, base + 10):
            if offset not in sound.records:
                break
            at = 4096 + 32 * (offset - base)
            position, length = (
                int.from_bytes(sound.files[index][at + n : at + n + 4], "little") for n in (0, 4)
            )
            touched = bad.get(index, set()) & set(range(at, at + 32))
            touched |= bad.get(segment, set()) & set(range(position, position + length))
            if not touched:
                found.add(offset)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_all_undamaged_records_are_saved_and_no_others(patient: Patient, closed: bool) -> None:
    seed = run_seed(f"salvage {closed}")
    sound = specimen(patient.place, closed=closed)
    for number in range(ROUNDS):
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            damaged, bad = damage(random.Random(f"{seed}/{number}"), sound)
            log = patient.salvage(damaged)
            if log.error:
                assert not any(path.suffix == ".index" for path in damaged.files)
                continue
            found = records(patient.target)
            whole = provable(sound, bad)
            assert set(found) >= whole, f"{sorted(whole - set(found))} were whole"
            for offset, record in found.items():
                original = sound.records[offset]
                assert (record.payload, record.timestamp_us) == (original.payload, original.timestamp_us)
                assert record.topic in (original.topic, None)
                assert record.headers == original.headers
                if FOLDER / "topics" not in bad:
                    assert record.topic == original.topic
            assert not lost_offsets(log) & set(found)
            ends = [end for _, end in log.saved] + [loss.end for loss in log.lost]
            if set(found) != set(sound.records):
                assert patient.report.exit_code == EXIT_LOSSES or max(ends, default=0) < 40
            assert log.end_offset >= max(found, default=0)


# Compressed segments.


def compressed_specimen(place: Path) -> Specimen:
    """Four segments of ten records, the first three compressed, in a frame each."""
    config = LogConfig(segment_entries=10)
    return make_specimen(
        place / "made",
        closed=True,
        count=40,
        config=config,
        compressed=True,
        payload=lambda n: b"record %d " % n * 30,
    )


FRAMED = [FOLDER / f"{base:020d}.1.segment" for base in (0, 10, 20)]


def flipped(*positions: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        damaged = bytearray(data)
        for position in positions:
            damaged[position] ^= 4
        return bytes(damaged)

    return change


def test_compressed_segments_are_copied_whole(patient: Patient) -> None:
    sound = compressed_specimen(patient.place)
    assert set(FRAMED) < set(sound.files)
    assert patient.salvage(sound).lost == ()
    assert records(patient.target) == sound.records


def test_frames_are_found_without_table_and_index(patient: Patient) -> None:
    sound = compressed_specimen(patient.place)
    damaged = sound.changed(FRAMED[0], lambda data: data[:-20])
    damaged = damaged.changed(FRAMED[1], flipped(-1, -10, -20))
    for index in (path for path in sound.files if path.suffix == ".index"):
        damaged = damaged.changed(index, lambda data: data[:-128] + bytes(128))
    assert patient.salvage(damaged).lost == ()
    assert records(patient.target) == sound.records


def test_damaged_frame_costs_only_its_records(patient: Patient) -> None:
    sound = compressed_specimen(patient.place)
    log = patient.salvage(sound.changed(FRAMED[1], flipped(75)))
    assert lost_offsets(log)
    assert lost_offsets(log) <= set(range(10, 20))
    saved = records(patient.target)
    assert saved == {offset: sound.records[offset] for offset in set(range(40)) - lost_offsets(log)}


def test_quarantined_compressed_files_are_read_too(patient: Patient) -> None:
    sound = compressed_specimen(patient.place)
    aside = sound
    for name in (FRAMED[1].name, f"{10:020d}.index"):
        data = aside.files[FOLDER / name]
        aside = aside.without(FOLDER / name).with_file(FOLDER / f"{name}.lost", data)
    log = patient.salvage(aside)
    assert records(patient.target) == sound.records
    assert log.from_aside == 10


def test_missing_dictionary_is_named(patient: Patient) -> None:
    golden = Path(__file__).parents[2] / "golden" / "v2"
    shutil.copytree(golden, patient.source)
    (patient.source / FOLDER / "1.dictionary").unlink()
    (log,) = salvage_store(patient.source, patient.target, clock=StepClock()).logs
    assert lost_offsets(log) == {4, 5, 6, 7}
    assert any("its dictionary, number 1, is missing" in note for note in log.notes)


def test_segment_with_an_emptied_index_is_not_reported_as_saved(patient: Patient) -> None:
    """The index had been truncated to nothing: salvage saved no record and reported that everything was saved."""
    specimen = make_specimen(patient.place / "made", closed=True, count=8)
    log = patient.salvage(specimen.with_file(INDEX, b""))
    assert (log.records, patient.report.exit_code) == (0, EXIT_LOSSES)
    assert "segment 0 has no valid index entries" in log.notes[0]
