import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import COMMAND, Running, wake_ups
from tests.cli.processes import timestone as command
from tests.support.terminal import OnTerminal
from tests.support.waiting import wait_for
from timestone_cli.commands import read as read_command
from timestone_cli.main import main


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log `t`: 3,000 records in three segments; `n` is the payload and the topic goes d/0, d/1, d/2, d/0, …"""
    path = tmp_path_factory.mktemp("store") / "data"
    for third in range(3):
        with timestone.open(path) as store:
            log = store.log("t")
            numbers = range(third * 1000, third * 1000 + 1000)
            log.append_many([b"%d" % n for n in numbers], topics=[f"d/{n % 3}" for n in numbers])
            log.roll()
    return path


def numbers(capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """The payloads that `read` prints for these words."""
    assert main(["read", *words, "--format", "text"]) == 0
    return [int(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], range(3000)),
        (["--from", "earliest"], range(3000)),
        (["--from", "latest"], range(0)),
        (["--from", "offset:2998"], range(2998, 3000)),
        (["--from", "offset:3000"], range(0)),
        (["--from", "offset:995", "--to", "offset:1005"], range(995, 1005)),
        (["--to", "offset:2"], range(2)),
        (["--to", "offset:0"], range(0)),
        (["--to", "latest"], range(3000)),
        (["--to", "earliest"], range(0)),
        (["--from", "offset:9", "--to", "offset:5"], range(0)),
        (["--to", "offset:99999"], range(3000)),
        (["--count", "7"], range(7)),
        (["--count", "0"], range(0)),
        (["--count", "99999"], range(3000)),
        (["--from", "offset:999", "--count", "2"], range(999, 1001)),
        (["--topic", "d/1"], range(1, 3000, 3)),
        (["--topic", "d/+"], range(3000)),
        (["--topic", "d/2", "--count", "3"], range(2, 11, 3)),
        (["--topic", "d/2", "--from", "offset:3", "--to", "offset:11"], range(5, 11, 3)),
        (["--topic", "other"], range(0)),
        (["--from", "time:1970-01-01T00:00:00Z"], range(3000)),
        (["--from", "time:2999-01-01T00:00:00Z"], range(0)),
        (["--to", "time:1970-01-01T00:00:00Z"], range(0)),
    ],
)
def test_from_to_topic_and_count_choose_records(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: range
) -> None:
    assert numbers(capsys, str(data), "t", *words) == list(expected)


def test_small_batches_change_nothing(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_command, "_BATCH_RECORDS", 7)
    words = ["--topic", "d/2", "--from", "offset:3", "--to", "offset:2000", "--count", "500"]
    assert numbers(capsys, str(data), "t", *words) == list(range(5, 5 + 1500, 3))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--last", "3"], range(2997, 3000)),
        (["--last", "0"], range(0)),
        (["--last", "5000"], range(3000)),
        (["--last", "3", "--to", "offset:1001"], range(998, 1001)),
        (["--last", "3", "--to", "earliest"], range(0)),
        (["--last", "3", "--to", "offset:99999"], range(2997, 3000)),
        (["--last", "3", "--count", "2"], range(2997, 2999)),
        (["--last", "4", "--topic", "d/1"], range(2989, 3000, 3)),
        (["--last", "2000", "--topic", "d/1"], range(1, 3000, 3)),
        (["--last", "1", "--topic", "other"], range(0)),
    ],
)
def test_last_chooses_the_newest_records(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: range
) -> None:
    assert numbers(capsys, str(data), "t", *words) == list(expected)


def test_last_counts_records_not_offsets_when_compaction_has_left_gaps(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with timestone.open(path, log=timestone.LogConfig(compact=True, segment_entries=100)) as store:
        log = store.log("t")
        log.append_many([b"%d" % n for n in range(5)], topics=[f"once/{n}" for n in range(5)])
        for n in range(5, 500):
            log.append(b"%d" % n, topic="again")
        log.roll()
        log.apply_compaction()
    values = command("read", str(path), "t", "--format", "text").stdout.split()
    assert values[:5] == ["0", "1", "2", "3", "4"] and len(values) < 200, "there are gaps"
    for count in (3, len(values) - 2, len(values)):
        done = command("read", str(path), "t", "--last", str(count), "--format", "text")
        assert (done.returncode, done.stdout.split()) == (0, values[-count:])


def test_last_counts_damaged_records_as_none_and_names_them_once(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    segment = copy / "t-0" / f"{2000:020d}.segment"
    content = bytearray(segment.read_bytes())
    content[4 * 998] ^= 0xFF  # payloads have four digits here: the record with offset 2998
    segment.write_bytes(content)
    done = command("read", str(copy), "t", "--format", "text", "--last", "2")
    assert (done.returncode, done.stdout.split()) == (3, ["2997", "2999"])
    assert done.stderr.count("record at offset 2998 is corrupt") == 1


@pytest.mark.slow
def test_a_terminal_shows_the_last_ten_records_by_default(data: Path, tmp_path: Path) -> None:
    for words, shown in (([], 10), (["--from", "earliest", "--count", "30"], 30), (["--last", "12"], 12)):
        with OnTerminal([*COMMAND, "read", str(data), "t", "--format", "text", *words], tmp_path) as terminal:
            terminal.wait_for("2999" if "--last" in words or not words else "29")
            assert terminal.process.wait(60) == 0
            assert len(terminal.shown.split()) == shown


@pytest.mark.slow
def test_follow_begins_with_the_last_records(growing: timestone.Log, tmp_path: Path) -> None:
    growing.append_many([b"1", b"2", b"3"])
    words = ["read", "data", "t", "--follow", "--last", "2", "--format", "text"]
    with Running(*words, cwd=tmp_path) as running:
        assert [running.line(), running.line()] == ["2", "3"]
        growing.append(b"4")
        assert running.line() == "4"
        assert running.stop(signal.SIGINT)[0] == 130


def test_by_time_it_starts_with_the_first_record_not_older(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with timestone.view(data) as view:
        moment = view.log("t").record(1000).timestamp_us
    text = f"{moment // 1_000_000}"
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(int(text)))}.{moment % 1_000_000:06d}Z"
    assert numbers(capsys, str(data), "t", "--from", f"time:{stamp}", "--count", "1") == [1000]
    assert numbers(capsys, str(data), "t", "--to", f"time:{stamp}") == list(range(1000))


def test_every_line_of_json_is_a_record(data: Path) -> None:
    done = command("read", str(data), "t", "--count", "2", "--from", "offset:1")
    assert [json.loads(line)["value"] for line in done.stdout.splitlines()] == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--from", "offset:3001"], "offset 3001 is out of range: the log holds [0, 3000)"),
        (["--partition", "1"], "log 't' has no partition 1; it has 0"),
    ],
)
def test_what_the_log_does_not_hold_is_said_with_numbers(
    data: Path, words: list[str], complaint: str
) -> None:
    done = command("read", str(data), "t", *words)
    assert (done.returncode, done.stderr) == (1, f"timestone read: {complaint}\n")


def test_damaged_records_are_named_and_skipped(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    os.system(f"cp -r '{data}' '{copy}'")
    segment = copy / "t-0" / f"{1000:020d}.segment"
    content = bytearray(segment.read_bytes())
    content[4 * 100] ^= 0xFF  # payloads have four digits here: the record with offset 1100
    segment.write_bytes(content)
    done = command("read", str(copy), "t", "--format", "text")
    assert done.returncode == 3
    assert [int(line) for line in done.stdout.splitlines()] == [n for n in range(3000) if n != 1100]
    assert "skipped: " in done.stderr
    assert "record at offset 1100 is corrupt" in done.stderr


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[timestone.Log]:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("t")
        log.append(b"0", topic="a")
        yield log


@pytest.mark.slow
def test_follow_shows_what_another_process_appends(growing: timestone.Log, tmp_path: Path) -> None:
    with Running("read", "data", "t", "--follow", "--format", "text", cwd=tmp_path) as running:
        assert running.line() == "0"
        for number in range(1, 4):
            growing.append(b"%d" % number)
            assert running.line() == str(number)
        code, rest, errors = running.stop(signal.SIGINT)
        assert (code, rest, errors) == (130, "", "")


@pytest.mark.slow
def test_follow_from_latest_shows_only_what_comes_and_of_the_topic(
    growing: timestone.Log, tmp_path: Path
) -> None:
    words = [
        "read",
        "data",
        "t",
        "--follow",
        "--from",
        "latest",
        "--topic",
        "a/#",
        "--count",
        "2",
        "--format",
        "text",
    ]
    with Running(*words, cwd=tmp_path) as running:
        number = 0
        while running.process.poll() is None:  # until it has started, what we append is before its start
            number += 1
            growing.append(b"%d" % number, topic="a/x" if number % 2 else "b")
            time.sleep(0.01)
        shown = [int(line) for line in running.stop()[1].splitlines()]
        assert running.process.returncode == 0
    assert len(shown) == 2
    assert shown[0] % 2 == 1
    assert shown[1] == shown[0] + 2


def test_follow_ends_at_the_place_it_was_given(growing: timestone.Log, tmp_path: Path) -> None:
    words = ["read", "data", "t", "--follow", "--to", "offset:3", "--format", "text"]
    with Running(*words, cwd=tmp_path) as running:
        growing.append_many([b"1", b"2", b"3"])
        out, _ = running.process.communicate(timeout=60)
        assert (running.process.returncode, out.split()) == (0, [b"0", b"1", b"2"])


@pytest.mark.slow
def test_an_idle_follower_costs_next_to_nothing(growing: timestone.Log, tmp_path: Path) -> None:
    def is_idle() -> bool:
        before, began_s = wake_ups(running.process.pid), time.monotonic()
        time.sleep(0.5)
        asleep_s = time.monotonic() - began_s  # longer than asked for when the machine is busy
        return wake_ups(running.process.pid) - before <= 12 * asleep_s

    with Running("read", "data", "t", "--follow", "--format", "text", cwd=tmp_path) as running:
        assert running.line() == "0"
        # One that looks too often never is. Any other may have to begin first, or wait until its memory is there.
        wait_for(is_idle)
