"""Postings are appended once, in order and completely, when the owner dies at any moment."""

import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.faulty_files import FaultyFiles, kill_process
from tests.support.postings import LOG, frame, staged
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone.errors import InvalidName
from timestone.format.names import INBOX_SPACE as SPACE
from timestone.spool.consumer import LEFT_OVER_S, POSTED_SUFFIX
from timestone.spool.format import PostingId
from timestone.spool.producer import SpoolProducer

WANTED = [b"a" * 5000, b"b", b"c", b"d" * 9000, b"e", b"f"]
KILLS = rounds(8, "TIMESTONE_CRASH_ROUNDS")


def hand_over(store: Path, number: int = 0) -> None:
    """Leave a posting of three frames where the next owner finds it."""
    parts = [[frame(WANTED[:3]), frame(WANTED[3:5])], [frame(WANTED[5:], topic=None)]]
    posting = staged(store, parts, number=number)
    (store / "inbox" / (posting.id.stem + POSTED_SUFFIX)).write_bytes(posting.encode())


def payloads(path: Path) -> list[bytes]:
    with timestone.view(path) as view:
        return [record.payload for record in view.log(LOG).reader()]


@pytest.fixture
def store(quick_directory: Path) -> Path:
    """A store with one record, and a waiting posting."""
    path = quick_directory / "data"
    with timestone.open(path) as opened:
        opened.log(LOG).append(b"before", topic="devices/1/cmd")
    hand_over(path)
    return path


def killed_at(store: Path, number: int, moment: str) -> bool:
    """Let a process open the store, which takes what waits, and die at one of its operations; was there one?"""

    def run(report: int) -> None:
        files = FaultyFiles()
        files.kill(number, moment, kill_process)
        timestone.open(store, files=files).close()

    status, _ = in_child(run)
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.crash
def test_each_record_is_appended_once_when_the_owner_dies_at_any_operation(
    store: Path, quick_directory: Path
) -> None:
    number, dying = 0, True
    while dying:
        number += 1
        copy = quick_directory / str(number)
        shutil.copytree(store, copy)
        # Half of each write, and nothing of other operations, which equals the end of the one before.
        dying = killed_at(copy, number, "middle")
        with timestone.open(copy) as opened:
            opened.log(LOG).append(b"after")
        assert payloads(copy) == [b"before", *WANTED, b"after"], number
        shutil.rmtree(copy)
    assert number > 20


@pytest.mark.crash
def test_each_record_is_appended_once_when_successors_die_too(store: Path, quick_directory: Path) -> None:
    seed = run_seed("postings")
    dice = random.Random(seed)
    for turn in range(KILLS):
        copy = quick_directory / str(turn)
        shutil.copytree(store, copy)
        deaths = [(dice.randint(1, 45), dice.choice(["before", "middle", "after"])) for _ in range(3)]
        with told_on_failure(TIMESTONE_SEED=seed, turn=turn, deaths=deaths):
            for number, moment in deaths:
                killed_at(copy, number, moment)
            with timestone.open(copy):
                pass
            assert payloads(copy) == [b"before", *WANTED]


def test_waiting_postings_are_appended_in_order_of_their_numbers(tmp_path: Path) -> None:
    with timestone.open(tmp_path):
        pass
    for number in (2, 0, 1):
        posting = staged(tmp_path, [[frame([b"%d" % number])]], number=number)
        (tmp_path / "inbox" / (posting.id.stem + POSTED_SUFFIX)).write_bytes(posting.encode())
    with timestone.open(tmp_path):
        pass
    assert payloads(tmp_path) == [b"0", b"1", b"2"]


def test_posting_waits_while_the_disk_refuses_and_is_appended_later(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    fault = files.fail("pwrite", forever=True, path=".segment")
    with timestone.open(store, files=files) as opened:
        assert "the posting cannot be appended now" in caplog.text
        fault.lift()
        opened.accept_postings()
        SpoolProducer(store, timestone.open).post(staged(store, [[frame([b"next"])]], number=1))
    assert payloads(store) == [b"before", *WANTED, b"next"]


def test_waiting_posting_delays_only_its_own_log(store: Path) -> None:
    """It delayed all later postings of every log: until the store was opened again, if its log had failed."""
    for number, log in enumerate((LOG, "other"), 1):
        posting = replace(staged(store, [[frame([log.encode()])]], number=number), log=log)
        (store / "inbox" / (posting.id.stem + POSTED_SUFFIX)).write_bytes(posting.encode())
    files = FaultyFiles()
    fault = files.fail("pwrite", forever=True, path=f"{LOG}-0/")
    with timestone.open(store, files=files) as opened:
        assert [record.payload for record in opened.log("other").reader()] == [b"other"]
        assert opened.log(LOG).end_offset == 1
        fault.lift()
    timestone.open(store).close()
    assert payloads(store) == [b"before", *WANTED, LOG.encode()]


def test_posting_is_refused_with_a_wrong_name_or_without_its_parts(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(store / "inbox" / "staging")
    (store / "inbox" / f"{0:020}-0{POSTED_SUFFIX}").write_bytes(b"{}")
    with timestone.open(store):
        pass
    assert payloads(store) == [b"before"]
    assert "a part of the posting is missing" in caplog.text
    assert "the file is not a posting" in caplog.text


@pytest.mark.parametrize("document", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_unreadable_posting_is_refused_and_others_are_appended(
    store: Path, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (store / "inbox" / f"{0:020}-0{POSTED_SUFFIX}").write_bytes(document)
    timestone.open(store).close()
    assert payloads(store) == [b"before", *WANTED]
    assert len(caplog.messages) == 1 and f"{0:020}-0.taken: the file is not a posting" in caplog.text


_WRONG_PROGRESS = [
    b'{"done": "x"}',
    b'{"done": 1.5}',
    b'{"since": -1}',
    b'{"begun": "x"}',
    b'{"colour": "red"}',
]


@pytest.mark.parametrize("document", [*_WRONG_PROGRESS, *DAMAGED_JSON.values()])
def test_postings_are_not_appended_when_the_progress_of_their_producer_is_damaged(
    tmp_path: Path, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with timestone.open(path) as opened:
        opened.log(LOG).append(b"before")
        opened.documents.put_many(SPACE, {f"{LOG}-0/producer": document})
    hand_over(path)
    timestone.open(path).close()
    assert payloads(path) == [b"before"]
    assert len(caplog.messages) == 1 and f"producer '{LOG}-0/producer'" in caplog.text


def test_abandoned_parts_are_removed_after_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timestone.open(tmp_path):
        pass
    poster = SpoolProducer(tmp_path, timestone.open)
    for group in ("old", "new"):
        poster.stage(group, [frame([b"a"])])
    old_s = time.time() - LEFT_OVER_S - 60
    inbox = tmp_path / "inbox"
    staging = inbox / "staging"
    for name in ("1-a.0.ready", "2-b.0.ready"):  # of posters that were killed in the middle of a posting
        (inbox / name).write_bytes(b"{")
    for path in (staging / "old", inbox / "1-a.0.ready"):
        os.utime(path, (old_s, old_s))
    for name in ("a", "z"):  # listed, and gone when they are looked at, as when a poster removes its own
        (staging / name).symlink_to("nowhere")
    with timestone.open(tmp_path):
        pass
    assert sorted(path.name for path in staging.iterdir() if not path.is_symlink()) == ["new"]
    assert sorted(path.name for path in inbox.iterdir()) == ["2-b.0.ready", "staging"]
    assert "the posting cannot be appended now" not in caplog.text


def test_batch_of_a_producer_is_appended_once_when_it_comes_again(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data") as opened:
        log = opened.log(LOG)
        assert opened.inbox.append_once(PostingId(LOG, 0, "p", 7), frame(WANTED)) == range(0, 6)
        assert log.synced_offset == 6
        assert opened.inbox.append_once(PostingId(LOG, 0, "p", 7), frame(WANTED)) is None
        assert opened.inbox.append_once(PostingId(LOG, 0, "p", 3), frame(WANTED)) is None
        assert opened.inbox.append_once(PostingId(LOG, 0, "other", 3), frame(WANTED[:1])) == range(6, 7)
        assert [record.payload for record in log] == [*WANTED, WANTED[0]]
        with pytest.raises(InvalidName, match="invalid producer"):
            opened.inbox.append_once(PostingId(LOG, 0, "", 1), frame(WANTED))
        assert opened.inbox.append_once(PostingId(LOG, 0, "p", 8), frame([])) == range(7, 7)


@pytest.mark.crash
def test_batch_of_a_producer_is_appended_once_when_the_process_dies_at_any_operation(
    quick_directory: Path,
) -> None:
    path, number, died = quick_directory / "data", 1, True
    with timestone.open(path) as opened:
        opened.log(LOG).append(b"before")
    while died:
        died = append_once_and_die(path, number, "middle")
        with timestone.open(path) as opened:
            opened.inbox.append_once(PostingId(LOG, 0, "p", number), frame(WANTED))
            found = [record.payload for record in opened.log(LOG)]
            assert found == [b"before", *WANTED * number]
        number += 1
    assert number > 3


def append_once_and_die(store: Path, number: int, moment: str) -> bool:
    """Let a process append a batch of a producer and die at one of its operations; was there one?"""

    def run(report: int) -> None:
        files = FaultyFiles()
        files.kill(number, moment, kill_process)
        opened = timestone.open(store, files=files)
        opened.inbox.append_once(PostingId(LOG, 0, "p", number), frame(WANTED))
        os._exit(0)

    status, _ = in_child(run)
    assert status in (0, signal.SIGKILL)
    return status != 0
