from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.console_client import Console
from tests.support.control_server import controlled_server
from tests.support.stores import LOG, fill
from timestone.reading.retention_hold import Pin
from timestone_console import sources
from timestone_console.config import Role
from timestone_console.http.sessions import Session
from timestone_console.problems import Problem


def test_store_without_a_server_has_no_status_and_shows_no_payload_that_rules_decide(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with Console(tmp_path / "data") as console:
        assert console.sources.status() is None
        reader, key = Session("anna", Role.READER), Session(None, Role.OPERATOR, all_payloads=True)
        assert console.sources.may_read(reader, ["a", "b"]) == {"a": False, "b": False}
        assert console.sources.may_read(key, ["a"]) == {"a": True}
        with pytest.raises(Problem, match="none runs on this store"):
            console.sources.logged_in("anna", "secret", "127.0.0.1")


def test_rules_of_the_server_that_change_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        allowed, asked = [True], []

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            asked.append(arguments["topics"])
            return {"may_read": allowed * len(arguments["topics"])}

        monkeypatch.setattr(console.sources.server, "call", call)
        session = Session("anna", Role.READER)
        for _ in range(2):
            assert console.sources.may_read(session, ["a"]) == {"a": True}
        assert asked == [["a"]]
        allowed = [False]
        monkeypatch.setattr(sources, "_ANSWER_S", -1.0)
        assert console.sources.may_read(session, ["a"]) == {"a": False}


def test_status_is_that_of_the_server_and_ends_with_it(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data"):
        console = Console(tmp_path / "data")
        status = console.sources.status()
        assert status is not None and status["fronts_with_clients"] == ["mqtt"]
        console.sources._status_s = -1e9
        assert console.sources.status() is not None
    console.sources._status_s = -1e9
    assert console.sources.status() is None
    console.__exit__()


def test_holders_settings_and_sizes_are_those_of_the_store(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with timestone.open(tmp_path / "data") as store:
        reader = store.log(LOG).reader(name="bill", pin=Pin(max_bytes=1000))
        reader.commit(4)
        reader.close()
    folder = tmp_path / "data" / "parquet" / f"{LOG}-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000-1f2e3d4c.parquet").write_bytes(b"")
    with Console(tmp_path / "data") as console:
        sources = console.sources
        assert sources.holders(LOG, 0) == [("bill", 4)]
        assert sources.side_files(LOG, 0) == {0}
        settings = {one["name"]: one["value"] for one in sources.settings_of(LOG, 0)}
        assert settings["segment_entries"] == 1000
        assert sources.store_bytes() > 10 * len(b"record 1")
        assert not sources.is_owned()
        assert sources.inspected(LOG, 0).records == 10
        with pytest.raises(Problem):
            sources.inspected("nope", 0)
