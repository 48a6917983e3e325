import json
import os
import signal
import time
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from timestone.config import Ack
from timestone.errors import LogFailed
from timestone_cli.commands import append
from timestone_cli.commands.append import Appender


def payloads(data: Path, log: str = "log") -> list[bytes]:
    with timestone.view(data) as view:
        return view.log(log).read(0, max_bytes=1 << 30, max_records=1 << 30).payloads()


@pytest.mark.parametrize("ack", [level.value for level in Ack])
def test_each_line_becomes_a_record(tmp_path: Path, ack: str) -> None:
    done = command("append", "data", "log", "--ack", ack, stdin=b"one\n\n\xff\x00\nlast", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"log-0: 4 records at offsets [0, 4), {ack}, 9 bytes at ")
    assert payloads(tmp_path / "data") == [b"one", b"", b"\xff\x00", b"last"]


def test_the_topic_goes_on_all_of_them_and_offsets_go_on(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    command("append", "data", "log", stdin=b"x", cwd=tmp_path)
    done = command("append", "data", "log", "--topic", "t/1", "--file", "in.txt", cwd=tmp_path)
    assert "2 records at offsets [1, 3)" in done.stdout
    with timestone.view(tmp_path / "data") as view:
        assert [record.topic for record in view.log("log").reader()] == [None, "t/1", "t/1"]


def test_nothing_in_is_nothing_appended(tmp_path: Path) -> None:
    done = command("append", "data", "log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "log-0: no records appended\n")


def test_a_program_is_told_offsets_and_level_as_an_object(tmp_path: Path) -> None:
    command("append", "data", "log", stdin=b"x\n", cwd=tmp_path)
    done = command("append", "data", "log", "--ack", "written", "--json", stdin=b"one\ntwo\n", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "log": "log",
        "partition": 0,
        "ack": "written",
        "start_offset": 1,
        "end_offset": 3,
        "records": 2,
        "record_bytes": 6,
    }


def test_a_program_is_told_what_was_appended_before_an_error(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("log", config=timestone.LogConfig(record_bytes=10))
    done = command("append", "data", "log", "--json", stdin=b"one\n" + b"x" * 11 + b"\ntwo\n", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    told = json.loads(done.stdout)
    assert (told["start_offset"], told["end_offset"], told["records"]) == (0, 1, 1)


def test_lines_are_appended_as_they_arrive(tmp_path: Path) -> None:
    with Running("append", "data", "log", cwd=tmp_path) as running:
        assert running.process.stdin is not None
        for line in (b"one\n", b"two\n"):
            running.process.stdin.write(line)
            running.process.stdin.flush()
            wait_for_record(tmp_path / "data", line.strip())
        running.process.stdin.close()
        assert running.line().startswith("log-0: 2 records at offsets [0, 2), synced")


def wait_for_record(data: Path, payload: bytes) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if payload in payloads(data):
                return
        except timestone.TimestoneError:
            pass  # the store or the log is still being made
        time.sleep(0.01)
    raise AssertionError(f"{payload!r} was not appended")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_what_was_appended_and_says_so(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Running("append", "data", "log", cwd=tmp_path) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(b"one\ntwo\nhalf a li")
        running.process.stdin.flush()
        wait_for_record(tmp_path / "data", b"two")
        os.kill(running.process.pid, number)
        assert running.line().startswith("log-0: 2 records at offsets [0, 2), synced")
        assert running.process.wait(60) == code
    assert payloads(tmp_path / "data") == [b"one", b"two"]


def test_a_store_that_another_process_owns_is_refused_with_its_pid(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data"):
        done = command("append", "data", "log", stdin=b"x", cwd=tmp_path)
    assert done.returncode == 1
    assert f"timestone append: store data is owned by process {os.getpid()}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_line_over_the_limit_is_named_and_those_before_it_are_kept(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("log", config=timestone.LogConfig(record_bytes=10))
    done = command("append", "data", "log", stdin=b"one\ntwo\n" + b"x" * 11 + b"\nfour\n", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "timestone append: line 3 is over the log's limit of 10 bytes\n",
    )
    assert "2 records at offsets [0, 2)" in done.stdout
    assert payloads(tmp_path / "data") == [b"one", b"two"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["data", "lo/g"], "timestone append: 'lo/g' cannot name a log"),
        (["data", "log", "--file", "."], "timestone append: .: Is a directory"),
        (["file", "log"], "timestone append: file is not a Timestone store: it is not a directory"),
    ],
)
def test_what_cannot_be_appended_to_or_from_is_one_line(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = command("append", *words, stdin=b"x\n", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(complaint)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("ack", list(Ack))
def test_a_bounded_amount_is_in_flight(tmp_path: Path, ack: Ack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "_IN_FLIGHT_BYTES", 1000)
    with timestone.open(tmp_path) as store:
        log = store.log("log")
        appender = Appender(log, topic=None, ack=ack)
        for number in range(200):
            appender.append([b"%03d" % number + b"x" * 97])
            unwritten = (number + 1 - log.end_offset) * 100
            assert unwritten <= 1100
        appender.finish()
        assert "200 records at offsets [0, 200)" in appender.describe()


def test_a_log_that_fails_ends_it_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log("log")
        appender = Appender(log, topic=None, ack=Ack.WRITTEN)
        appender.append([b"one"])
        appender.finish()
        failure = LogFailed(tmp_path, OSError("disk gone"))
        monkeypatch.setattr(log, "submit", lambda draft, *, ack: (_ for _ in ()).throw(failure))
        with pytest.raises(LogFailed):
            appender.append([b"two"])
        assert "1 record at offsets [0, 1)" in appender.describe()
