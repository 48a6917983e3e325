"""Views while retention deletes: each step of a deletion at each call of the view to the disk.

The steps are those of a real deletion, recorded once. They are repeated on copies of the store, as another process
would do them, so that every run has the same interleavings."""

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.recording_files import RecordingFiles, Renamed, Unlinked
from tests.support.seeds import told_on_failure
from timestone import LogConfig, LogView, Record
from timestone.disk.files import Files
from timestone.errors import OffsetOutOfRange
from timestone.reading.listed_segments import ListedSegments

STARTS = [0, 4, 8, 12]
END = 13

Step = tuple[Path, Path | None]
"""File below the store, and its new name; None if it is removed."""


def segments_of(log: LogView) -> ListedSegments:
    """Return the segments, examined or not."""
    segments = log.segment_list.segments
    assert isinstance(segments, ListedSegments)
    return segments


class ExpiredStore:
    """A store with three segments to delete, and the steps that delete them: an index, its segment, the next index …,
    then the removals."""

    def __init__(self, path: Path, *, is_synced: bool) -> None:
        """is_synced: whether the newest segment was flushed; if not, a view examines the one before it first."""
        self.before = path / "before"
        self.steps: list[Step] = []
        files = RecordingFiles(path / "owner")
        with timestone.open(
            path / "owner",
            files=files,
            ack="written",
            min_free_bytes=0,
            sync_interval_ms=10**9,
            delete_delay_ms=10**9,
        ) as store:
            store.maintenance.stop()
            log = store.log("a", config=LogConfig(segment_entries=4, retention_bytes=1))
            for number in range(END):
                if number in STARTS[1:]:
                    log.roll()
                    store.sealer.settle()  # which flushes: before the next append
                log.append(b"%d" % number)
            if is_synced:
                log.sync()
            shutil.copytree(path / "owner", self.before)
            first = len(files.operations)
            assert log.apply_retention() == len(STARTS) - 1
            store.deleted_files.unlink_all()
            for one in files.operations[first:]:
                if isinstance(one, Renamed):
                    self.steps.append(
                        (one.source.relative_to(files.root), one.target.relative_to(files.root))
                    )
                elif isinstance(one, Unlinked):
                    self.steps.append((one.path.relative_to(files.root), None))

        with timestone.view(self.before) as view:
            assert sorted(segments_of(view.log("a")).seen()) == ([0, 12] if is_synced else [0, 8, 12])

    def start_after(self, count: int) -> int:
        """Return the start of the log after this many steps."""
        return STARTS[sum(old.suffix == ".index" for old, _ in self.steps[:count])]


class Interleaving(Files):
    """Deletes between the calls of a view to the disk: some steps at once in front of one call, then one step in front
    of every further call."""

    def __init__(self, root: Path, steps: Sequence[Step]) -> None:
        self.root = root
        self.calls = 0
        self._steps = iter(steps)
        self._first = -1

    def strike(self, call: int, count: int, *, goes_on: bool) -> None:
        """Begin in front of this call from now on, with this many steps."""
        self._first, self._count, self._goes_on = self.calls + call, count, goes_on

    def finish(self) -> None:
        """Do the steps that are left."""
        self._do(1000)

    def _called(self) -> None:
        if self.calls == self._first:
            self._do(self._count)
        elif 0 <= self._first < self.calls and self._goes_on:
            self._do(1)
        self.calls += 1

    def _do(self, count: int) -> None:
        for old, new in itertools.islice(self._steps, count):
            if new is not None:
                os.rename(self.root / old, self.root / new)
            else:
                os.unlink(self.root / old)

    def open(self, path: Path, *, write: bool = False) -> int:
        self._called()
        return super().open(path, write=write)

    def names(self, path: Path) -> list[str]:
        self._called()
        return super().names(path)

    def stat(self, path: Path) -> Any:
        self._called()
        return super().stat(path)


@pytest.fixture(params=[False, True], ids=["unsynced", "synced"], scope="module")
def expired(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ExpiredStore:
    return ExpiredStore(tmp_path_factory.mktemp("expired"), is_synced=request.param)


@contextmanager
def copied(store: Path, root: Path) -> Iterator[Path]:
    """Copy a store for the block."""
    shutil.copytree(store, root)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def read_all(log: LogView) -> list[Record]:
    """Read to the end, from the new start after each deletion in front of the offset."""
    found: list[Record] = []
    offset = log.start_offset
    while offset < END:
        try:
            batch = log.read(offset, max_records=1)
        except OffsetOutOfRange as error:
            before, offset = offset, error.start
            if before >= offset or offset not in STARTS:
                raise
            continue
        found += batch
        offset = batch.next_offset
    return found


def check(log: LogView, starts: Sequence[int]) -> None:
    """Check that the log is whole from one of these starts on, and that what is read is, too."""
    assert log.start_offset in starts
    assert not log.segment_list.missing
    assert list(segments_of(log).bases) == STARTS[STARTS.index(log.start_offset) :]
    first = log.start_offset
    records = read_all(log)
    assert [record.payload for record in records] == [b"%d" % record.offset for record in records]
    offsets = [record.offset for record in records]
    gaps = [after for before, after in itertools.pairwise([first - 1, *offsets]) if after != before + 1]
    assert all(offset in STARTS for offset in gaps), "only deletions are passed over"
    assert offsets[-1] == END - 1
    assert not log.segment_list.missing


def calls_of_a_view(root: Path, *, is_open: bool) -> int:
    """Return how many calls a view makes, to be opened or refreshed and to read everything."""
    files = Interleaving(root, ())
    with timestone.view(root, files=files) as view:
        if is_open:
            log = view.log("a")
            read_all(log)
            files.calls = 0
            log.refresh()
        read_all(view.log("a"))
    return files.calls


@pytest.mark.parametrize("is_open", [False, True], ids=["opened", "refreshed"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "step by step"])
def test_view_is_whole_whenever_retention_strikes(
    expired: ExpiredStore, quick_directory: Path, is_open: bool, goes_on: bool
) -> None:
    calls = calls_of_a_view(expired.before, is_open=is_open)
    for call, count in itertools.product(range(calls), range(1, len(expired.steps) + 1)):
        with (
            told_on_failure(call=call, count=count),
            copied(expired.before, quick_directory / "copy") as root,
        ):
            files = Interleaving(root, expired.steps)
            with timestone.view(root, files=files) as view:
                if is_open:
                    read_all(view.log("a"))
                    view.open_segments.clear()
                files.strike(call, count, goes_on=goes_on)
                log = view.log("a")
                check(log, STARTS if goes_on else [0, expired.start_after(count)])
                files.finish()
                log.refresh()
                check(log, STARTS[-1:])
