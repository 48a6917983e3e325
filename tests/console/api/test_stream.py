import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.console_client import Console
from tests.support.stores import LOG, fill
from timestone_console.api import stream as stream_module
from timestone_console.api.stream import StreamQuery, stream
from timestone_console.config import Role
from timestone_console.http.sessions import Session
from timestone_console.problems import Problem

KEY = Session(None, Role.OPERATOR, all_payloads=True)


def events(
    console: Console, query: StreamQuery, wanted: str, count: int, then: Any = None
) -> list[tuple[Any, Any]]:
    """Return ids and documents of the first events of a kind; `then` is called once the stream runs."""

    async def read() -> list[tuple[Any, Any]]:
        found = []
        running = stream(console.sources, KEY, query)
        async for event in running:
            lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
            if "event" in lines and then is not None:
                await asyncio.to_thread(then)
                then_done.append(1)
            if lines.get("event") == wanted:
                found.append((lines.get("id"), json.loads(lines["data"])))
            if len(found) == count:
                break
        await running.aclose()  # type: ignore[attr-defined]
        return found

    then_done: list[int] = []
    return asyncio.run(read())


def test_tail_gives_what_is_appended_and_goes_on_at_its_id(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store, Console(tmp_path / "data") as console:
        log = store.log(LOG)
        log.append(b"before")
        ((number, tail),) = events(
            console, StreamQuery(log=LOG), "records", 1, lambda: log.append(b"new", topic="a")
        )
        assert [row["value"]["text"] for row in tail["records"]][:1] == ["new"] and int(number) >= 2
        log.append(b"later")
        ((_, rest),) = events(console, StreamQuery(log=LOG, last_event_id=str(number)), "records", 1)
        assert rest["records"][0]["offset"] == int(number)
        assert console.sources.streams == 0 and KEY.streams == 0


def test_tail_leaves_out_what_is_too_much_and_counts_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1000)
    with Console(tmp_path / "data") as console:
        query = StreamQuery(log=LOG, from_="earliest")
        ((_, tail),) = events(console, query, "records", 1)
        assert len(tail["records"]) + tail["left_out"] == 1000 == tail["next"]
        ((_, one),) = events(console, StreamQuery(log=LOG, from_="0", filter=("devices/3/+",)), "records", 1)
        assert {row["topic"] for row in one["records"]} == {"devices/3/state"} and one["left_out"] == 0


def test_figures_come_without_a_server(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        ((_, found),) = events(console, StreamQuery(), "figures", 1)
        assert found["server"]["state"] == "stopped" and found["live"] is None


def test_stream_ends_with_the_session_that_opened_it(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        session = Session("anna", Role.READER)
        console.sessions.start(session)

        async def read() -> list[bytes]:
            found = []
            async for event in stream(console.sources, session, StreamQuery()):
                found.append(event)
                console.sessions.end(session)
            return found

        assert asyncio.run(read()) == [b"retry: 1000\n\n"]
        assert console.sources.streams == 0


def test_streams_are_bounded_and_records_need_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        with pytest.raises(Problem, match="role reader"):
            stream(console.sources, Session(None, Role.FIGURES), StreamQuery(log=LOG))
        monkeypatch.setattr(stream_module, "ALL_STREAMS", 0)
        with pytest.raises(Problem, match="may be open"):
            stream(console.sources, KEY, StreamQuery())
