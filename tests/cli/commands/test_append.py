import errno
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.faulty_files import FaultyFiles
from timestone.config import Ack
from timestone.errors import LogFailed
from timestone.record import FLAG_RETAIN, FLAG_TOMBSTONE, Header, HeaderKind, encode_headers
from timestone.writing.write_batch import WriteBatch
from timestone_cli.commands import append
from timestone_cli.commands.append import Appender


def payloads(data: Path, log: str = "log") -> list[bytes]:
    with timestone.view(data) as view:
        return view.log(log).read(0, max_bytes=1 << 30, max_records=1 << 30).payloads()


@pytest.mark.slow
@pytest.mark.parametrize("ack", [level.value for level in Ack])
def test_each_line_becomes_a_record(tmp_path: Path, ack: str) -> None:
    done = command("append", "data", "log", "--ack", ack, stdin=b"one\n\n\xff\x00\nlast", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"log-0: 4 records at offsets [0, 4), {ack}, 9 bytes at ")
    assert payloads(tmp_path / "data") == [b"one", b"", b"\xff\x00", b"last"]


def test_all_records_get_the_topic_and_offsets_continue(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a\nb\n")
    command("append", "data", "log", stdin=b"x", cwd=tmp_path)
    done = command("append", "data", "log", "--topic", "t/1", "--file", "in.txt", cwd=tmp_path)
    assert "2 records at offsets [1, 3)" in done.stdout
    with timestone.view(tmp_path / "data") as view:
        assert [record.topic for record in view.log("log").reader()] == [None, "t/1", "t/1"]


@pytest.mark.parametrize(("options", "state"), [((), "closed"), (("--roll",), "sealed")])
def test_the_segment_is_sealed_at_the_end_on_demand(
    tmp_path: Path, options: tuple[str, ...], state: str
) -> None:
    assert command("append", "data", "log", *options, stdin=b"x\n", cwd=tmp_path).returncode == 0
    found = json.loads(command("inspect", "data", "--json", cwd=tmp_path).stdout)
    assert [segment["state"] for segment in found["logs"][0]["segments"]] == [state]


def test_nothing_in_is_nothing_appended(tmp_path: Path) -> None:
    done = command("append", "data", "log", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "log-0: no records appended\n")


def test_json_has_offsets_and_level(tmp_path: Path) -> None:
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
        "bytes": 6,
        "unacknowledged": 0,
    }


def test_json_has_what_was_appended_before_an_error(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("log", config=timestone.LogConfig(record_bytes=10))
    done = command("append", "data", "log", "--json", stdin=b"one\n" + b"x" * 11 + b"\ntwo\n", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    told = json.loads(done.stdout)
    assert (told["start_offset"], told["end_offset"], told["records"]) == (0, 1, 1)


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_invalid_log_name_is_wrong_usage_and_creates_nothing(tmp_path: Path) -> None:
    done = command("append", "data", "lo/g", stdin=b"x\n", cwd=tmp_path)
    assert done.returncode == 64
    assert done.stderr.startswith("timestone append: invalid value for 'LOG': 'lo/g' cannot name a log")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ack", list(Ack))
def test_a_bounded_amount_is_in_flight(tmp_path: Path, ack: Ack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "_IN_FLIGHT_BYTES", 1000)
    with timestone.open(tmp_path) as store:
        log = store.log("log")
        appender = Appender(log, ack=ack)
        for number in range(200):
            appender.append(WriteBatch([b"%03d" % number + b"x" * 97]))
            unwritten = (number + 1 - log.end_offset) * 100
            assert unwritten <= 1100
        appender.finish()
        assert "200 records at offsets [0, 200)" in appender.describe()


def test_a_log_that_fails_ends_it_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log("log")
        appender = Appender(log, ack=Ack.WRITTEN)
        appender.append(WriteBatch([b"one"]))
        appender.finish()
        failure = LogFailed(tmp_path, OSError("disk gone"))
        monkeypatch.setattr(log, "submit", lambda write_batch, *, ack: (_ for _ in ()).throw(failure))
        with pytest.raises(LogFailed):
            appender.append(WriteBatch([b"two"]))
        assert "1 record at offsets [0, 1)" in appender.describe()


def test_records_that_are_in_the_log_without_an_acknowledgement_are_named(tmp_path: Path) -> None:
    files = FaultyFiles()
    with suppress(LogFailed), timestone.open(tmp_path, files=files) as store:
        log = store.log("log")
        appender = Appender(log, ack=Ack.SYNCED)
        appender.append(WriteBatch([b"one"]))
        appender.finish()
        files.fail("fdatasync", forever=True)
        for payload in (b"two", b"three"):
            with suppress(LogFailed):
                appender.append(WriteBatch([payload] * 2))
        with pytest.raises(LogFailed):
            appender.finish()
        unknown = log.end_offset - 1
        assert unknown >= 2
        assert appender.describe().endswith(f"; {unknown} records from offset 1 on may stay, not synced")
        assert (appender.to_json()["end_offset"], appender.to_json()["unacknowledged"]) == (1, unknown)


def test_batches_behind_one_that_fails_are_counted(tmp_path: Path) -> None:
    files = FaultyFiles()
    with timestone.open(tmp_path, files=files) as store:
        log = store.log("log")
        appender = Appender(log, ack=Ack.SYNCED)
        appender.append(WriteBatch([b"one"]))
        appender.finish()
        files.fail("pwrite", errno.ENOSPC)
        for count in (2, 3, 4):
            appender.append(WriteBatch([b"more"] * count))
            log.submit(WriteBatch([]), ack=Ack.WRITTEN).wait()
        with pytest.raises(OSError, match="No space left"):
            appender.finish()
        assert log.end_offset == 8
        assert "8 records at offsets [0, 8), synced" in appender.describe()


KEPT = [
    Header(HeaderKind.KEY, "", b"\x00\xffkey"),
    Header(HeaderKind.USER, "unit", "°C".encode()),
    Header(HeaderKind.USER, "unit", b"\xfe"),
    Header(HeaderKind.USER, "", b""),
    Header(HeaderKind.CONTENT_TYPE, "", b"text/plain"),
    Header(HeaderKind.MESSAGE_EXPIRY, "", (3600).to_bytes(4, "little")),
    Header(HeaderKind.PAYLOAD_FORMAT, "", b"\x01"),
    Header(HeaderKind.CORRELATION_DATA, "", b"\xc3\x28"),
]
NOTED = [
    Header(HeaderKind.PUBLISHER, "", b"device-1"),
    Header(HeaderKind.PACKET_ID, "", b"\x07\x00"),
    Header(HeaderKind.POSTING, "", b"x"),
    Header(HeaderKind.WILL, "", b"x"),
]


def records(data: Path, log: str) -> list[timestone.Record]:
    with timestone.view(data) as view:
        return list(view.log(log).reader())


def test_what_read_prints_as_json_is_appended_as_it_was(tmp_path: Path) -> None:
    """All but offset, time and what a server noted about the arrival."""
    payloads = [b"", b"plain", b"\xff\x00\n\xe2\x80\xa8", "\u2028\x1b[2J".encode(), b'{"a": 1}']
    with timestone.open(tmp_path / "data") as store:
        log = store.log("log")
        block = encode_headers(KEPT)
        for number, payload in enumerate(payloads):
            head = (b"", block, encode_headers([*NOTED, *KEPT, *NOTED]))[number % 3]
            topic = log.topic_id(f"site/{number}/é") if number % 2 else 0xFFFF_FFFF
            flags = (0, FLAG_RETAIN | 2 << 1, FLAG_TOMBSTONE)[number % 3]
            log.submit(
                WriteBatch([head + payload], topic, flags=flags, header_lengths=len(head)), ack="written"
            ).wait()
    printed = command("read", "data", "log", cwd=tmp_path).stdout
    done = command("append", "copy", "log", "--format", "json", stdin=printed.encode(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = records(tmp_path / "data", "log"), records(tmp_path / "copy", "log")
    assert [(one.payload, one.topic, one.flags, one.key) for one in after] == [
        (one.payload, one.topic, one.flags, one.key) for one in before
    ]
    kinds_noted = {item.kind for item in NOTED}
    assert [list(one.block) for one in after] == [
        [item for item in one.block if item.kind not in kinds_noted] for one in before
    ]
    assert list(after[1].block) == KEPT


def test_hex_lines_and_a_topic_for_records_without_one(tmp_path: Path) -> None:
    command("append", "data", "hex", "--format", "hex", stdin=b"00ff\n\n0A\n", cwd=tmp_path)
    assert payloads(tmp_path / "data", "hex") == [b"\x00\xff", b"", b"\n"]
    lines = b'{"value": "1"}\n{"value": "2", "topic": "own"}\n'
    command("append", "data", "json", "--format", "json", "--topic", "given", stdin=lines, cwd=tmp_path)
    assert [one.topic for one in records(tmp_path / "data", "json")] == ["given", "own"]


@pytest.mark.parametrize(
    ("form", "line", "complaint"),
    [
        ("json", b"nonsense", "line 2 is not a record: Expecting value"),
        ("json", b"[]", "line 2 is not a record: expected an object"),
        ("json", b"{}", "line 2 is not a record: expected a value or a value_base64"),
        ("json", b'{"value_base64": "*"}', "line 2 is not a record: "),
        (
            "json",
            b'{"value": "x", "topic": "a/#"}',
            "line 2 is not a record: topic 'a/#' contains a wildcard",
        ),
        ("json", b'{"value": "x", "flags": 16}', "line 2 is not a record: invalid flags"),
        (
            "json",
            b'{"value": "x", "headers": [{"kind": "odd", "value": "x"}]}',
            "line 2 is not a record: invalid kind",
        ),
        ("json", b'{"value": "' + b"x" * 11 + b'"}', "line 2 is not a record: record of 11 bytes"),
        ("hex", b"0", "line 2 is not a record: non-hexadecimal number"),
    ],
)
def test_line_that_is_not_a_record_is_named_and_those_before_it_are_kept(
    tmp_path: Path, form: str, line: bytes, complaint: str
) -> None:
    with timestone.open(tmp_path / "data") as store:
        store.log("log", config=timestone.LogConfig(record_bytes=10))
    first = b'{"value": "one"}' if form == "json" else b"6f6e65"
    done = command(
        "append", "data", "log", "--format", form, stdin=first + b"\n" + line + b"\n", cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"timestone append: {complaint}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert payloads(tmp_path / "data") == [b"one"]
