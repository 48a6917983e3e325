"""Views of a replica whose files another process cuts, deletes and writes again under the same names."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import timestone
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, submitted
from tests.timestone.replication.view_churn import LOG, topic_of
from timestone.disk.files import Files
from timestone.errors import OffsetOutOfRange, UnknownLog
from timestone.format.names import TOPICS_NAME
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


@pytest.mark.parametrize("suffix", [".index", ".segment"])
def test_view_reads_files_again_that_were_written_under_the_names_of_deleted_ones(
    tmp_path: Path, suffix: str
) -> None:
    """An index and the bytes of two segments do not belong together; neither is damaged."""
    with small(tmp_path) as store:
        log = leading(store, 3)
        log.show(3)
        with timestone.view(tmp_path) as view:
            shown = view.log(LOG)
            (segment,) = shown.segment_list.segments
            segment.pair()
            for path in (segment.index_path, segment.segment_path):
                shutil.copy(path, path.with_suffix(".copy"))
                if path.suffix == suffix:  # as if the view had opened one of the other segment
                    with path.open("r+b") as file:
                        file.seek(4096 if suffix == ".index" else 0)
                        file.write(b"?")
                path.with_suffix(".copy").replace(path)
            assert [bytes(record.payload) for record in shown.read(0)] == [b"0", b"1", b"2"]


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
