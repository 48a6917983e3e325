"""Producers: known ones, their limit, and what happens when one is forgotten."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import timestone
from flight_front.staging.producers import SPACE
from tests.support.faulty_files import FaultyFiles
from tests.support.flight_server import FlightProcess, RunningFlight, batch, command, options, put, serving
from tests.support.postings import frame
from tests.support.step_clock import StepClock
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.format.names import INBOX_SPACE
from timestone_access.passwords.password_file import set_password

REFUSED = (fl.FlightError, pa.ArrowException)
EXPIRY_MS = 60_000
UNKNOWN = r"log t: the producer is not known, so batch 8 may be in the log already.*producer_expiry_ms"


@contextlib.contextmanager
def flight_server(path: Path, clock: StepClock, **settings: Any) -> Iterator[RunningFlight]:
    with timestone.open(path / "data", clock=clock) as store:
        for log in ("t", "u"):
            store.log(log)
        with serving(store, producer_expiry_ms=EXPIRY_MS, **settings) as running:
            yield running


def append(client: Any, producer: str, number: int, *, log: str = "t", login: Any = None) -> dict[str, Any]:
    asked = command(log=log, producer=producer)
    [answer] = put(client, asked, batch([b"x"]), metadata=[{"number": number}], logged_in=login)
    found: dict[str, Any] = answer
    return found


def act(client: Any, kind: str, **values: Any) -> None:
    list(client.do_action(fl.Action(kind, json.dumps(values).encode()), options()))


def kept(server: RunningFlight) -> list[str]:
    documents = server.store.documents
    return sorted([*documents.items(SPACE), *documents.items(INBOX_SPACE)])


def test_unknown_producer_begins_with_number_zero_or_the_action(tmp_path: Path) -> None:
    with flight_server(tmp_path, StepClock()) as server, server.connect() as client:
        with pytest.raises(REFUSED, match=UNKNOWN):
            append(client, "meter", 8)
        assert server.store.log("t").end_offset == 0
        assert append(client, "meter", 0)["first"] == 0
        assert append(client, "meter", 8)["first"] == 1
        assert append(client, "meter", 20, log="u")["first"] == 0
        act(client, "begin", log="t", producer="other")
        assert append(client, "other", 8)["first"] == 2
        act(client, "begin", log="t", producer="meter")  # changes nothing for a known one
        assert append(client, "meter", 8)["duplicate"]


def test_silent_producer_is_forgotten_and_its_retry_refused_also_after_a_restart(tmp_path: Path) -> None:
    clock = StepClock()
    with flight_server(tmp_path, clock) as server, server.connect() as client:
        for producer in ("silent", "busy"):
            append(client, producer, 0)
            append(client, producer, 8)
            append(client, producer, 8, log="u")
        clock.advance(EXPIRY_MS * 2 // 3)
        assert append(client, "busy", 8)["duplicate"]  # a retry is a use, too
    with flight_server(tmp_path, clock) as server, server.connect() as client:
        clock.advance(EXPIRY_MS * 2 // 3)
        with pytest.raises(REFUSED, match=UNKNOWN):
            append(client, "silent", 8)
        assert not [key for key in kept(server) if "silent" in key]
        assert append(client, "busy", 8)["duplicate"]
        assert append(client, "busy", 8, log="u")["duplicate"]  # it was used in the other log
        assert server.store.log("t").end_offset == 4
        assert append(client, "silent", 0)["first"] == 4


def test_clock_that_is_set_forgets_no_producer(tmp_path: Path) -> None:
    clock = StepClock()
    with flight_server(tmp_path, clock) as server, server.connect() as client:
        append(client, "meter", 0)
        append(client, "meter", 8)
        clock.step(EXPIRY_MS * 1000)
        assert append(client, "meter", 8)["duplicate"]


def test_count_of_producers_is_limited_for_each_user(tmp_path: Path) -> None:
    clock = StepClock()
    (tmp_path / "acl").write_text("user one\nlog write *\nuser two\nlog write *\n")
    for name in ("one", "two"):
        set_password(tmp_path / "passwords", name, b"secret")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, clock, producer_count=2, **files) as server, server.connect() as client:
        one, two = (
            fl.FlightCallOptions(headers=[client.authenticate_basic_token(name, b"secret")])
            for name in (b"one", b"two")
        )
        for producer in ("a", "b"):
            append(client, producer, 0, login=one)
        with pytest.raises(REFUSED, match="2 producers of this user are known, limit producer_count"):
            append(client, "c", 0, login=one)
        append(client, "b", 1, log="u", login=one)
        append(client, "c", 0, login=two)
        discard = fl.Action("discard", json.dumps({"log": "t", "producer": "a"}).encode())
        list(client.do_action(discard, one))
        append(client, "c", 0, login=one)
        clock.advance(EXPIRY_MS * 2)
        append(client, "d", 0, login=one)
        assert len(server.store.documents.items(SPACE)) == 1


def test_known_producers_survive_a_kill(tmp_path: Path) -> None:
    for number in range(3):
        with FlightProcess(tmp_path) as process, process.connect() as client:
            assert append(client, "meter", 10 * number)["first"] == number
            process.kill()
    with FlightProcess(tmp_path) as process, process.connect() as client:
        assert append(client, "meter", 20)["duplicate"]
        with pytest.raises(REFUSED, match=UNKNOWN):
            append(client, "other", 8)


def test_producers_of_an_earlier_version_are_taken_over(tmp_path: Path) -> None:
    with flight_server(tmp_path, StepClock()) as server, server.connect() as client:
        append(client, "meter", 0)
        append(client, "meter", 8)
        server.store.documents.put_many(SPACE, dict.fromkeys(server.store.documents.items(SPACE)))
    with flight_server(tmp_path, StepClock()) as server, server.connect() as client:
        assert append(client, "meter", 8)["duplicate"]
        assert len(server.store.documents.items(SPACE)) == 1


@pytest.mark.parametrize("document", [b"garbage", b"{}", b'{"seen_us": "x"}'])
def test_unreadable_note_counts_as_a_producer_that_is_taken_over(
    tmp_path: Path, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with flight_server(tmp_path, StepClock()) as server, server.connect() as client:
        append(client, "meter", 0)
        [key] = server.store.documents.items(SPACE)
        server.store.documents.put_many(SPACE, {key: document})
    with flight_server(tmp_path, StepClock()) as server, server.connect() as client:
        assert append(client, "meter", 0)["duplicate"]
        assert "flight.producers: skipped" in caplog.text


def test_posting_that_waits_ends_with_its_server(tmp_path: Path) -> None:
    """Its thread kept the process of a stopped server for as long as the client was ready to wait."""
    files = FaultyFiles()
    with timestone.open(tmp_path / "data", files=files) as store:
        store.log("t")
        with serving(store) as server, server.connect() as client:
            part = pa.record_batch([pa.array([frame([b"x"]).encode()], pa.binary())], names=["part"])
            [answer] = put(client, command(log="t", stage="g"), part)
            files.fail("pwrite", forever=True, path=".segment")
            posting = {"log": "t", "producer": "p", "number": 0, "parts": [answer["part"]], "wait_s": 600}
            action = fl.Action("post", json.dumps(posting).encode())
            asking = ThreadPoolExecutor(1).submit(lambda: list(client.do_action(action, options())))
            wait_for(lambda: list((tmp_path / "data" / "inbox").glob("*.taken")))
            threads = [each for each in threading.enumerate() if each.name.startswith("flight-spool")]
            assert threads
            server.run(server.front.stop())
            with pytest.raises(REFUSED):
                asking.result(TIMEOUT_S)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
