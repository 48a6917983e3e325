"""Damage to the catalogue loses no record: the store refuses it by name or continues, and a store without a catalogue
is served from its folders.

test_system_calls.py lets the system calls of SQLite fail; here the file itself is damaged.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import timestone
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone import CorruptLog, LogConfig, ReaderId, Store, StoreConfig
from timestone.repair.inspection import EXIT_CLEAN, EXIT_CORRUPT, inspect_store

pytestmark = pytest.mark.faults

NAME = "catalog.db"
CONFIG = StoreConfig(min_free_bytes=0, scrub_bytes_per_s=0)
LOGS = [("a", 0), ("a", 1), ("telemetry", 0)]
READER = ReaderId("telemetry", 0, "billing")
PAGE = 4096
ROUNDS = rounds(40, "TIMESTONE_CATALOGUE_ROUNDS")


@pytest.fixture
def root(quick_directory: Path) -> Path:
    """A stopped store with settings, commits and a table of several pages."""
    root = quick_directory / "store"
    with timestone.open(root, config=CONFIG) as store:
        for name, partition in LOGS:
            log = store.log(name, partition, config=LogConfig(segment_entries=7))
            log.append_many([b"%d" % number for number in range(20)], topic="t")
        store.commit_readers({READER: 11})
        store.documents.put_many("sessions", {f"client {number}": bytes(500) for number in range(60)})
    return root


def check_records(store: Store) -> None:
    for name, partition in LOGS:
        records = store.log(name, partition, create=False).reader("earliest")
        assert [record.payload for record in records] == [b"%d" % number for number in range(20)]


def check(root: Path) -> bool:
    """Check that the store is served, or refused by name with a next step that works."""
    refusal = None
    try:
        store = timestone.open(root, config=CONFIG)
    except CorruptLog as error:
        refusal = error
    else:
        with store:
            check_records(store)
            store.log("telemetry").append(b"more")
    if refusal is None:
        return True
    assert refusal.path == root / NAME
    assert "move it away" in str(refusal)
    with timestone.view(root) as view:
        assert view.log("telemetry").record(19).payload == b"19", "a view does without it"
    report = inspect_store(root, deep=True)
    assert report.exit_code == EXIT_CORRUPT
    assert NAME in report.notes[0]
    for file in root.glob(f"{NAME}*"):
        file.unlink()
    with timestone.open(root, config=CONFIG) as store:
        check_records(store)
        assert store.log("telemetry").append(b"more") == 20
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN
    return False


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "zeros": lambda page, rng: bytes(len(page)),
    "noise": lambda page, rng: rng.randbytes(len(page)),
    "a few bytes": lambda page, rng: flipped(page, rng, 8),
    "one bit": lambda page, rng: flipped(page, rng, 1),
}


def flipped(page: bytes, rng: random.Random, count: int) -> bytes:
    changed = bytearray(page)
    for position in rng.sample(range(len(page)), count):
        changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_anywhere_in_the_catalogue_costs_no_record(
    root: Path, how: str, quick_directory: Path
) -> None:
    whole = (root / NAME).read_bytes()
    seed = run_seed(f"catalogue {how}")
    refused = 0
    for number in range(ROUNDS):
        rng = random.Random(f"{seed}/{number}")
        start = number % (len(whole) // PAGE) * PAGE
        copy = quick_directory / "copy"
        shutil.copytree(root, copy)
        page = DAMAGE[how](whole[start : start + PAGE], rng)
        (copy / NAME).write_bytes(whole[:start] + page + whole[start + PAGE :])
        with told_on_failure(TIMESTONE_SEED=seed, round=number, page=start // PAGE):
            refused += not check(copy)
        shutil.rmtree(copy)
    print(f"{refused} of {ROUNDS} refused, seed {seed}")
    assert how == "one bit" or refused


def test_flipped_bit_in_a_committed_offset_is_reported_by_its_reader(root: Path) -> None:
    """It was read as another offset: the reader silently missed records or got them twice."""
    whole = (root / NAME).read_bytes()
    place = whole.index(b'"offset": 11') + len('"offset": ')
    for bit in range(16):
        damaged = bytearray(whole)
        damaged[place + bit // 8] ^= 1 << bit % 8
        (root / NAME).write_bytes(damaged)
        report = inspect_store(root)
        assert report.exit_code == EXIT_CORRUPT
        assert f"{NAME}: its row 'telemetry-0/billing' of the space 'readers'" in report.notes[0]
        with timestone.open(root, config=CONFIG) as store:
            check_records(store)
            with pytest.raises(CorruptLog, match="telemetry-0/billing"):
                store.log("telemetry").reader(name="billing")
            store.forget_readers([READER])
            assert store.committed(READER) is None


@pytest.mark.parametrize("size", [0, 1, 15, 16, 100, 4095, 4096, 4097, 9000])
def test_catalogue_cut_anywhere_costs_no_record(root: Path, size: int) -> None:
    (root / NAME).write_bytes((root / NAME).read_bytes()[:size])
    check(root)


def test_store_without_its_catalogue_is_served_from_its_folders(root: Path) -> None:
    (root / NAME).unlink()
    assert check(root)
    with timestone.open(root, config=CONFIG) as store:
        assert store.committed(READER) is None, "what only the catalogue knew is gone"
        assert store.log_names() == LOGS


def test_catalogue_removed_under_its_owner_fails_commits_and_no_append(root: Path) -> None:
    """SQLite would continue in a file without a name; commits have to fail."""
    with timestone.open(root, config=CONFIG) as store:
        (root / NAME).unlink()
        with pytest.raises(OSError, match=NAME):
            store.commit_readers({READER: 12})
        assert store.log("telemetry").append(b"more", ack="synced") == 20
    with timestone.open(root, config=CONFIG) as store:
        assert store.log("telemetry").record(20).payload == b"more"


def test_catalogue_locked_by_another_process_fails_commits_with_its_name(root: Path) -> None:
    """Another program has the catalogue open and keeps its lock."""
    with timestone.open(root, config=CONFIG) as store:
        stranger = sqlite3.connect(root / NAME, isolation_level=None)
        stranger.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="locked") as caught:
            store.commit_readers({READER: 12})
        assert caught.value.filename == str(root / NAME)
        assert store.log("telemetry").append(b"more", ack="synced") == 20
        stranger.execute("ROLLBACK")
        stranger.close()
        store.commit_readers({READER: 12})
        commitment = store.committed(READER)
        assert commitment is not None
        assert commitment.offset == 12
