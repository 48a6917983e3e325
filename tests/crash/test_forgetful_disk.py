"""The power fails under a whole process, with mappings, threads and SQLite, on a file system that loses unflushed data.

More rounds for a soak run:

    TIMESTONE_CRASH_ROUNDS=1000 TIMESTONE_SEED=random pytest tests/crash/test_forgetful_disk.py
"""

import faulthandler
import os
import random
import shutil
import signal
import struct
import time
from pathlib import Path

import pytest

import timestone
from tests.support.killed_appender import (
    ACKNOWLEDGED,
    COMMITTED,
    CONFIG,
    LOG_NAME,
    READER,
    READY,
    STARTED,
    STATE,
    Appender,
    expected_payload,
    topic_of,
)
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone import Ack, CorruptRecord, Log, LogView, Store, StoreView

try:
    from tests.support import forgetful_disk
except (ImportError, OSError) as error:
    pytest.skip(f"no file system in Python here: {error}", allow_module_level=True)

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(bool(forgetful_disk.reason_to_skip()), reason=forgetful_disk.reason_to_skip()),
]

ROUNDS = rounds(12, "TIMESTONE_CRASH_ROUNDS")
ROUND_NUMBERS = 1_000_000
"""Numbers available to one round; the number of a record determines its round."""


def append_until_the_power_fails(
    place: Path, round_number: int, rng: random.Random
) -> tuple[dict[int, int], int]:
    """Let a process, and then the disk, die while it appends; return the records acknowledged as synced with their
    offsets, and the last offset that a reader has committed. Sometimes the power fails during recovery."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            faulthandler.disable()  # a disk that vanishes under a mapping is SIGBUS: expected in this process
            Appender(place / "store", round_number * ROUND_NUMBERS, writer, levels=(Ack.SYNCED,)).run()
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read(len(STARTED)) == STARTED
        said = b"" if rng.random() < 0.2 else pipe.read(len(READY))
        time.sleep(rng.uniform(0.001, 0.3))
        forgetful_disk.cut_power(place, rng.getrandbits(32))
        os.kill(pid, signal.SIGKILL)
        said += pipe.read()
    os.waitpid(pid, 0)
    facts = list(ACKNOWLEDGED.iter_unpack(said[: len(said) // ACKNOWLEDGED.size * ACKNOWLEDGED.size]))
    # Records of the compacted log may have been replaced by newer ones.
    return (
        dict(fact for fact in facts if fact[0] < STATE and ACKNOWLEDGED.pack(*fact) != READY),
        max((offset for number, offset in facts if number == COMMITTED), default=0),
    )


def check_committed(store: Store | StoreView, committed: int) -> None:
    """Check that the last commit that returned is there, or a later one."""
    found = store.committed(READER)
    assert (found.offset if found else 0) >= committed, "an acknowledged commit is gone"


def check(log: Log | LogView, acknowledged: dict[int, int]) -> int:
    """Check that every acknowledged record is at its offset, and that every record was appended. A view may meet
    unsynced records of which half is there, or whose topic has no name: recovery cuts them off."""
    found: dict[int, int] = {}
    last = -1
    reader = log.reader("earliest")
    while not reader.caught_up:
        try:
            batch = reader.read()
        except CorruptRecord as damage:
            if isinstance(log, Log):
                raise
            reader.seek(damage.next_offset)
            continue
        for record in batch:
            (number,) = struct.unpack_from("<Q", record.payload)
            assert record.payload == expected_payload(number), (
                f"offset {record.offset} is not a record of this test"
            )
            promised = number in acknowledged or isinstance(log, Log)
            assert record.topic == topic_of(number) or not promised
            assert number > last, "in the order of submission, none twice"
            last = number
            found[number] = record.offset
    lost = {number: at for number, at in acknowledged.items() if found.get(number) != at}
    assert not lost, f"{len(lost)} acknowledged records are gone or elsewhere: {sorted(lost.items())[:5]}"
    return len(found)


def test_synced_records_survive_a_disk_that_loses_the_rest(tmp_path: Path, quick_directory: Path) -> None:
    seed = run_seed("forgetful disk")
    rng = random.Random(seed)
    platters, place = quick_directory / "platters", tmp_path / "disk"
    platters.mkdir()
    place.mkdir()
    acknowledged: dict[int, int] = {}
    number = committed = 0
    # On a slow machine, more rounds are needed until they have tested enough.
    while number < ROUNDS or (len(acknowledged) <= 10 * ROUNDS and number < 10 * ROUNDS):
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            with forgetful_disk.mounted(platters, place):
                appended, last = append_until_the_power_fails(place, number, rng)
            acknowledged |= appended
            committed = max(committed, last)
            if acknowledged:
                with timestone.view(platters / "store") as view:
                    check(view.log(LOG_NAME), acknowledged)
                    check_committed(view, committed)
            if number % 3 == 1:
                copy = quick_directory / "copy"
                shutil.copytree(platters / "store", copy)
                with timestone.open(copy, config=CONFIG) as store:
                    check(store.log(LOG_NAME), acknowledged)
                shutil.rmtree(copy)
        number += 1
    with timestone.open(platters / "store", config=CONFIG) as store:
        found_count = check(store.log(LOG_NAME), acknowledged)
        check_committed(store, committed)
    print(
        f"{number} power cuts, seed {seed}: {len(acknowledged)} records acknowledged, 0 lost, {found_count} found"
    )
    assert len(acknowledged) > 10 * ROUNDS, "the rounds are too short to mean anything"


def test_simulated_disk_loses_unflushed_bytes(tmp_path: Path) -> None:
    """The other test relies on this."""
    platters, place = tmp_path / "platters", tmp_path / "disk"
    platters.mkdir()
    place.mkdir()
    with forgetful_disk.mounted(platters, place):
        for name in ("flushed", "emptied", "removed", "old"):
            with (place / name).open("wb", buffering=0) as file:
                file.write(name.encode())
                if name != "emptied":
                    os.fdatasync(file.fileno())
                    file.write(b", and more")
        sync_directory(place)
        (place / "removed").unlink()
        (place / "old").rename(place / "new")
        (place / "made").write_bytes(b"")
        assert (place / "flushed").read_bytes() == b"flushed, and more"
        assert sorted(path.name for path in place.iterdir()) == ["emptied", "flushed", "made", "new"]
        forgetful_disk.cut_power(place, None)
    found = {path.name: path.read_bytes() for path in platters.iterdir()}
    assert found == {"flushed": b"flushed", "emptied": b"", "removed": b"removed", "old": b"old"}


@pytest.mark.parametrize("seed", range(20))
def test_simulated_disk_keeps_flushed_names_and_any_of_the_others(seed: int, tmp_path: Path) -> None:
    platters, place = tmp_path / "platters", tmp_path / "disk"
    platters.mkdir()
    place.mkdir()
    with forgetful_disk.mounted(platters, place):
        (place / "folder").mkdir()
        for name in "abc":
            (place / "folder" / name).write_bytes(b"")
        sync_directory(place / "folder")
        sync_directory(place)
        (place / "folder" / "a").unlink()
        sync_directory(place / "folder")
        (place / "folder" / "b").rename(place / "folder" / "c")
        (place / "folder" / "d").mkdir()
        forgetful_disk.cut_power(place, seed)
    found = {path.name for path in (platters / "folder").iterdir()} - {"d"}
    assert found in ({"b", "c"}, {"c"}), "a is gone for good, and of the rename all or nothing has happened"


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
