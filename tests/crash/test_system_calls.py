"""A real process whose system calls fail, one after the other: killed at each, cut short, refused once and permanently.

The faults come from below the engine (`tests/support/system_calls.c`, preloaded), so they also affect calls outside of
timestone/disk/files.py: SQLite's own calls for the catalogue. By default at some calls of each kind on each kind of
file; at every single one in a soak run:

    TIMESTONE_CALLS_STEP=1 pytest tests/crash/test_system_calls.py
"""

import errno
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.faulted_owner import CONFIG, LOG_NAME, READER, STATE, STATES_NAME, payload_of, topic_of
from tests.support.seeds import rounds, told_on_failure
from tests.support.system_calls import Action, Calls, Fault, FaultedProcess, Run, build_library
from timestone.repair.inspection import EXIT_TORN, inspect_store

pytestmark = [pytest.mark.crash, pytest.mark.faults]

OWNER = "tests.support.faulted_owner"
STEP = rounds(20, "TIMESTONE_CALLS_STEP")
"""Every n-th of the calls of a kind is refused, and every `KILL_STEP`-th kills."""
KILL_STEP = -(-STEP // 5)
SECOND_LIFE = 100
"""The number of the first record that is appended to a store of an earlier process."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultedProcess]:
    library = build_library(tmp_path_factory.mktemp("library"))
    if library is None:
        pytest.skip("there is no C compiler, and without one nothing can be put under a process")
    with FaultedProcess(library) as process:
        yield process


@dataclass
class Promises:
    """The acknowledged results of the owners of one store."""

    tried: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    acked: dict[int, int] = field(default_factory=dict)
    committed: int | None = None
    committing: int | None = None
    deletable: int = 0
    errors: list[str] = field(default_factory=list)

    def note(self, run: Run) -> "Promises":
        for word, *values in run.facts:
            match word:
                case "tried":
                    self.tried |= set(range(values[0], sum(values)))
                case "refused":
                    self.refused |= set(range(values[0], sum(values)))
                case "acked":
                    self.acked[values[0]] = values[1]
                case "committing":
                    self.committing = values[0]
                case "committed":
                    self.committed = values[0]
                case "deleting":
                    self.deletable = values[0]
                case "error":
                    self.errors.append(values[1])
        return self


def check(root: Path, promises: Promises) -> None:
    """Check that the remaining store works, loses no acknowledged record and invents none."""
    if not root.exists() or not any(root.iterdir()):
        assert not promises.acked
        return
    if (root / f"{LOG_NAME}-0").exists():
        report = inspect_store(root, deep=True)
        assert report.exit_code <= EXIT_TORN, report
        assert all(not log.error for log in report.logs), report
    with timestone.open(root, config=CONFIG) as store:
        store.maintenance.stop()  # some runs leave a limit behind: segments beyond it are deleted now
        log = store.log(LOG_NAME)
        found: dict[int, int] = {}
        for record in log.reader("earliest"):
            assert record.topic is not None
            number = int(record.topic.removeprefix("devices/"))
            assert number in promises.tried - promises.refused, (
                f"offset {record.offset} was refused, or never tried"
            )
            assert record.payload == payload_of(number)
            assert number not in found
            found[number] = record.offset
        assert list(found) == sorted(found), "in the order of the appends"
        start = min(found.values(), default=log.end_offset)
        assert list(found.values()) == list(range(start, log.end_offset)), "without holes"
        assert start <= promises.deletable
        for number, offset in promises.acked.items():
            if number < STATE:
                assert found.get(number) == offset or offset < start, f"record {number} is lost"
        check_states(store, promises)
        commitment = store.committed(timestone.ReaderId(LOG_NAME, 0, READER))
        committed = commitment.offset if commitment else None
        assert committed in (promises.committed, promises.committing), "a commit is whole or not there"
        end = log.end_offset
        assert log.append(b"after", topic=topic_of(10**6)) == end
    with timestone.open(root, config=CONFIG, recovery="strict") as store:
        assert store.log(LOG_NAME, create=False).end_offset == end + 1


def check_states(store: timestone.Store, promises: Promises) -> None:
    """Check the compacted log: an acknowledged record is removed only for a newer one of its topic."""
    acked = {number: offset for number, offset in promises.acked.items() if number >= STATE}
    if (STATES_NAME, 0) not in store.log_names():
        assert not acked
        return
    found: dict[int, int] = {}
    last: dict[str, int] = {}
    for record in store.log(STATES_NAME).reader("earliest"):
        number = int(record.payload.partition(b"-")[0])
        assert number in promises.tried - promises.refused
        assert (record.payload, record.topic) == (payload_of(number), topic_of(number))
        assert number > max(found, default=-1), "in the order of the appends"
        found[number] = record.offset
        last[topic_of(number)] = number
    for number, offset in acked.items():
        assert found.get(number, offset) == offset
        assert number in found or last.get(topic_of(number), -1) > number, f"state {number} is lost"


def numbers_of(calls: list[str], step: int, pattern: str = "") -> list[int]:
    """Return the calls to try: the number of every `step`-th that fits, of each kind of call on each kind of file."""
    seen: dict[str, int] = {}
    chosen = []
    for number, call in enumerate(calls, 1):
        kind = re.sub(r"\d{20}", "N", call)
        seen[kind] = seen.get(kind, -1) + 1
        if re.search(pattern, call) and seen[kind] % step == 0:
            chosen.append(number)
    return chosen


@dataclass(frozen=True, slots=True)
class Scene:
    """Steps of an owner, and the files before them."""

    steps: str
    before: Path | None
    promises: dict[str, Any]
    calls: list[str]

    @property
    def first_number(self) -> int:
        return SECOND_LIFE if self.before else 0


@pytest.fixture(scope="module", params=["live", "recover", "compact"])
def scene(
    request: pytest.FixtureRequest, process: FaultedProcess, tmp_path_factory: pytest.TempPathFactory
) -> Scene:
    folder = tmp_path_factory.mktemp("scene")
    before, facts = None, []
    if request.param == "recover":
        before = folder / "before"
        left = process.run(OWNER, before, Fault(), steps="leave_unclosed", kill=True)
        facts = left.facts
        torn = next(before.glob("*/*12.segment"))
        torn.write_bytes(torn.read_bytes() + b"torn")
        (torn.parent / "00000000000000000000.index.tmp").write_bytes(b"of a seal that was cut short")
    if request.param == "compact":
        before = folder / "before"
        facts = process.run(OWNER, before, Fault(), steps="leave_states", kill=True).facts
    place = folder / "whole"
    if before:
        shutil.copytree(before, place)
    whole = process.run(OWNER, place, steps=request.param, first_number=SECOND_LIFE if before else 0)
    assert whole.status == 0
    assert not [fact for fact in whole.facts if fact[0] == "error"]
    assert any("catalog.db" in call for call in whole.calls), "SQLite's calls count too"
    if request.param == "compact":
        assert any(".1.segment" in call for call in whole.calls), "something was compacted"
    return Scene(request.param, before, {"facts": facts}, whole.calls)


def run_faulted(
    process: FaultedProcess, scene: Scene, root: Path, fault: Fault, **how: Any
) -> tuple[Run, Promises]:
    if scene.before:
        shutil.copytree(scene.before, root)
    promises = Promises().note(Run(0, scene.promises["facts"], []))
    run = process.run(OWNER, root, fault, steps=scene.steps, first_number=scene.first_number, **how)
    return run, promises.note(run)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("action", [Action.KILL, Action.KILL_IN_THE_MIDDLE], ids=["before", "in the middle"])
def test_promises_hold_when_killed_at_each_system_call(
    process: FaultedProcess, scene: Scene, action: Action, quick_directory: Path
) -> None:
    pattern = "" if action is Action.KILL else "write"
    for number in numbers_of(scene.calls, KILL_STEP, pattern):
        root = quick_directory / "store"
        with told_on_failure(call=number, at=scene.calls[number - 1]):
            run, promises = run_faulted(process, scene, root, Fault(action, number))
            assert run.status in (0, 9), "it ends by its own kill, or after all calls"
            check(root, promises)
        shutil.rmtree(root, ignore_errors=True)


ERRORS = {
    "EIO": (errno.EIO, Calls.CHANGES, ""),
    "ENOSPC": (errno.ENOSPC, Calls.CHANGES, "create|write|fallocate|mkdir|rename|sync"),
    "unreadable": (errno.EIO, Calls.READS, ""),
    "EMFILE": (errno.EMFILE, Calls.OPENS, ""),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "without end"])
@pytest.mark.parametrize("error", ERRORS)
def test_promises_hold_when_each_system_call_fails(
    process: FaultedProcess, scene: Scene, error: str, forever: bool, quick_directory: Path
) -> None:
    """The caller gets an error with the file; every reported result is true; and after the cause is gone the store
    works again in the same process."""
    number_of_error, calls, pattern = ERRORS[error]
    whole, _ = run_faulted(process, scene, quick_directory / "whole", Fault(calls=calls))
    for number in numbers_of(whole.calls, STEP, pattern):
        root = quick_directory / "store"
        fault = Fault(Action.FAIL, number, number_of_error, forever, calls)
        with told_on_failure(call=number, at=whole.calls[number - 1]):
            run, promises = run_faulted(process, scene, root, fault, go_on=True)
            assert run.status == 0
            assert run.facts[-1] == ["alive"]
            for text in promises.errors:
                assert str(root) in text, f"{text!r} names no file"
            check(root, promises)
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.timeout(600)
def test_promises_hold_when_each_write_is_short(
    process: FaultedProcess, scene: Scene, quick_directory: Path
) -> None:
    """A write that does only half of its work is not an error; code that does not repeat it loses the other half."""
    for number in numbers_of(scene.calls, STEP, "write"):
        root = quick_directory / "store"
        with told_on_failure(call=number, at=scene.calls[number - 1]):
            run, promises = run_faulted(process, scene, root, Fault(Action.SHORT, number), go_on=True)
            assert run.status == 0
            check(root, promises)
        shutil.rmtree(root, ignore_errors=True)
