"""Views of a replica whose files another process cuts, deletes and writes again under the same names."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import timestone
from tests.support.waiting import TIMEOUT_S
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, submitted
from tests.timestone.replication.view_churn import LOG, made, topic_of
from timestone.disk.files import Data, Files
from timestone.errors import OffsetOutOfRange, UnknownLog
from timestone.format.names import TOPICS_NAME
from timestone.kernel.entries import HEADER_BYTES
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.view import LogView, StoreView

SECONDS = float(os.environ.get("TIMESTONE_VIEW_SECONDS", "3"))


def small(path: Path) -> Store:
    """Open a store whose logs are replicas, of small segments."""
    return Store(path, crash_config(segment_entries=4), log_type=ReplicatedLog)


def seen(view: LogView) -> list[tuple[bytes, str | None]]:
    """Return what a view shows now."""
    view.refresh()
    return [(bytes(record.payload), record.topic) for record in view]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("count", [3, 4, 6, 9])
@pytest.mark.parametrize("first", [0, 1, 3, 4, 5])
def test_view_shows_what_was_written_in_the_place_of_cut_records(
    tmp_path: Path, first: int, count: int, is_open: bool
) -> None:
    with small(tmp_path) as store:
        log = leading(store, first)
        log.show(first)
        names = log.names_count
        for number in range(count):
            submitted(log, b"lost %d" % number, topic=f"lost/{number}")
        view = timestone.view(tmp_path).log(LOG)
        for segment in view.segment_list.segments:
            if is_open and segment.count:
                segment.pair()
        log.follow()
        log.cut(first, names)
        log.lead(2)
        for number in range(count + 1):
            submitted(log, b"kept %d" % number, topic=f"kept/{number}")
        log.show(first + count + 1)
        kept = [(b"kept %d" % number, f"kept/{number}") for number in range(count + 1)]
        assert seen(view)[first:] == kept


def test_view_shows_committed_records_when_the_newest_segment_has_no_committed_offset(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        log = leading(store, 4)
        log.show(4)
        submitted(log, b"behind")
        assert [payload for payload, _ in seen(timestone.view(tmp_path).log(LOG))] == payloads(log)


def test_log_is_unknown_when_it_is_deleted_between_its_listing_and_its_opening(tmp_path: Path) -> None:
    class Deleting(Files):
        def open(self, path: Path, *, write: bool = False) -> int:
            if path.name == TOPICS_NAME:
                shutil.rmtree(path.parent)
            return super().open(path, write=write)

    with small(tmp_path) as store:
        leading(store, 3)
    with StoreView(tmp_path, files=Deleting()) as view, pytest.raises(UnknownLog):
        view.log(LOG)


def copied(store: Store, path: Path, *ends: int) -> ReplicatedLog:
    """Make the log, as a copy of another replica, with records of segments that are sealed at these offsets."""
    log = made(store, path)
    log.lead(1)
    for end in ends:
        for number in range(log.written_offset, end):
            submitted(log, b"%d" % number)
        log.show(end)
        log.roll()
        log.seal_rolled()
    return log


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("ends", [(3, 5), (5,), (1, 2, 3, 4, 5)])
def test_view_reports_a_log_unknown_that_was_deleted_and_copied_again(
    tmp_path: Path, ends: tuple[int, ...], is_open: bool
) -> None:
    """Its segments have the names of earlier ones and other ends: the trailer lies where an entry lay."""
    with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
        copied(store, tmp_path, 5, 8)
        with timestone.view(tmp_path) as view:
            shown = view.log(LOG)
            if is_open:
                assert [bytes(record.payload) for record in shown] == [b"%d" % number for number in range(8)]
                view.open_segments.clear()  # as other segments take their places
            store.delete_log(LOG)
            copy = copied(store, tmp_path, *ends)
            for offset in range(8):
                with pytest.raises(UnknownLog):
                    shown.read(offset)
            assert payloads(copy) == [bytes(record.payload) for record in view.log(LOG)]


def test_view_takes_no_index_for_that_of_the_bytes_of_a_deleted_segment(tmp_path: Path) -> None:
    class Replacing(Files):
        is_armed = False

        def open(self, path: Path, *, write: bool = False) -> int:
            if self.is_armed and path.suffix == ".index":
                self.is_armed = False
                store.delete_log(LOG)
                copied(store, tmp_path, 3, 5)
            return super().open(path, write=write)

    with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
        copied(store, tmp_path, 5)
        files = Replacing()
        with StoreView(tmp_path, files=files) as view:
            shown = view.log(LOG)
            files.is_armed = True
            with pytest.raises(UnknownLog):
                shown.read(3)


class Stepped(Files):
    """Files that call `event` before the call number `at` of those that rename, unlink or list files."""

    def __init__(self, event: Callable[[], object]) -> None:
        self.calls, self.at, self.event = 0, -1, event

    def _step(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.event()

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def names(self, folder: Path) -> list[str]:
        self._step()
        return super().names(folder)


@pytest.mark.parametrize("overtaken_at", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("start", [8, 20])
@pytest.mark.parametrize("written", [8, 11])
def test_position_that_a_reset_leaves_behind_is_out_of_range_and_never_lost(
    tmp_path: Path, written: int, start: int, overtaken_at: int
) -> None:
    """The reset stops before one of its steps. overtaken_at: listing of the view during which it completes."""

    def look(shown: LogView) -> None:
        for offset in range(8):
            try:
                found = bytes(shown.record(offset).payload)
            except OffsetOutOfRange as error:
                found = b"%d" % offset if error.start == error.end == start else repr(error).encode()
            assert found == b"%d" % offset
        assert shown.end_offset in (8, start)

    def looked_during_it(path: Path, at: int) -> bool:
        """Look while the reset stops before its step number `at`. Return False if it has fewer."""
        stopped, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

        def stop() -> None:
            stopped.set()
            assert goes_on.wait(TIMEOUT_S)

        def reset() -> None:
            log.reset(start)
            ended.set()
            stopped.set()

        def complete() -> None:
            goes_on.set()
            thread.join()

        files, listed, thread = Stepped(stop), Stepped(complete), threading.Thread(target=reset)
        with (
            Store(path, crash_config(segment_entries=4), files=files, log_type=ReplicatedLog) as store,
            StoreView(path, files=listed) as view,
        ):
            log = leading(store, written)
            log.show(8)
            log.seal_rolled()
            log.follow()
            shown, files.at = view.log(LOG), files.calls + at
            thread.start()
            assert stopped.wait(TIMEOUT_S)
            during, listed.at = not ended.is_set(), listed.calls + overtaken_at
            try:
                look(shown)
                look(view.log(LOG))
                with timestone.view(path) as new:
                    look(new.log(LOG))
            finally:
                complete()
            assert (shown.refresh(), shown.start_offset) == (start, start)
            with pytest.raises(OffsetOutOfRange):
                shown.read(7)
        return during

    steps = itertools.takewhile(lambda at: looked_during_it(tmp_path / f"{at}", at), itertools.count(1))
    assert len(list(steps)) > 2 * (written // 4)


def test_committed_offset_that_was_given_up_counts_for_no_later_record(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        log = leading(store, 7)
        log.show(7)
        log.follow()
        log.cut(5, log.names_count, is_given_up=True)
        log.lead(2)
        submitted(log, b"behind", b"behind")
        shown = [b"%d" % number for number in range(5)]
        assert [payload for payload, _ in seen(timestone.view(tmp_path).log(LOG))] == shown
    with small(tmp_path) as store:
        assert payloads(leading(store)) == shown


def test_view_takes_no_segment_for_lost_that_is_cut_before_its_first_record_is_shown(tmp_path: Path) -> None:
    with small(tmp_path) as store:
        log = leading(store, 4)
        log.show(4)
        submitted(log, b"behind")
        index = tmp_path / "telemetry-0" / f"{4:020d}.index"
        os.truncate(index, HEADER_BYTES)  # as before its first entry is written
        with timestone.view(tmp_path) as view:
            shown = view.log(LOG)
            for _ in range(2):
                assert (shown.refresh(), shown.lost_offsets(0, 9)) == (4, [])
                index.unlink(missing_ok=True)  # the first step of the cut


def begun_again(store: Store) -> ReplicatedLog:
    """Return a leader without records, at offset 3."""
    log = leading(store, 3)
    log.show(3)
    log.follow()
    log.reset(3)
    log.lead(2)
    return log


def test_view_of_a_replica_that_begins_again_ends_where_it_begins_before_the_first_record_is_shown(
    tmp_path: Path,
) -> None:
    with small(tmp_path) as store:
        submitted(begun_again(store), b"behind")
        shown = timestone.view(tmp_path).log(LOG)
        assert (shown.start_offset, shown.end_offset, seen(shown)) == (3, 3, [])


@pytest.mark.parametrize("read", [1, 2])
def test_view_shows_no_record_of_a_segment_that_began_while_it_was_looked_at(
    tmp_path: Path, read: int
) -> None:
    """Its page has no header yet: nothing there says that the log is a replica."""
    stopped, goes_on = threading.Event(), threading.Event()
    thread, blank = threading.Thread(target=lambda: submitted(log, b"behind")), itertools.count(1)

    class Stopping(Files):
        def write_all(self, fd: int, data: Data, position: int) -> None:
            if position == 0 and thread.ident == threading.get_ident():
                stopped.set()
                assert goes_on.wait(TIMEOUT_S)
            super().write_all(fd, data, position)

    class Completing(Files):
        def pread(self, fd: int, length_bytes: int, position: int) -> bytes:
            found = super().pread(fd, length_bytes, position)
            if (position, length_bytes) == (0, HEADER_BYTES) and not any(found) and next(blank) == read:
                goes_on.set()
                thread.join()
            return found

    with Store(tmp_path, crash_config(), files=Stopping(), log_type=ReplicatedLog) as store:
        log = begun_again(store)
        thread.start()
        try:
            assert stopped.wait(TIMEOUT_S)
            with StoreView(tmp_path, files=Completing()) as view:
                assert (list(view.log(LOG)), next(blank) > read) == ([], True)
        finally:
            goes_on.set()
            thread.join()


@pytest.mark.timeout(60 + 2 * SECONDS)
def test_views_show_each_record_as_it_was_committed_while_another_process_writes_files_again(
    tmp_path: Path,
) -> None:
    """TIMESTONE_VIEW_SECONDS: how long."""
    command = [sys.executable, "-m", "tests.timestone.replication.view_churn", str(tmp_path), "2"]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdin is not None and owner.stdout is not None
    try:
        assert owner.stdout.readline() == b"ready\n"
        kept, looks, reads = timestone.view(tmp_path), 0, 0
        ends_s = time.monotonic() + SECONDS
        while time.monotonic() < ends_s:
            assert owner.poll() is None
            looks += 1
            view = kept if looks % 2 else timestone.view(tmp_path)
            try:
                for record in view.log(LOG):
                    reads += 1
                    assert bytes(record.payload) == b"%d" % record.offset
                    assert record.topic == topic_of(record.offset)
            except (UnknownLog, OffsetOutOfRange, timestone.NotAStore):
                pass  # deleted, or begun again
            if view is not kept:
                view.close()
        assert reads
    finally:
        owner.stdin.close()
        owner.wait(30)
    assert owner.returncode == 0
