"""Names, payloads and stores that an attacker or a failing disk has made, through every call that shows them."""

import json
import shutil
from pathlib import Path

import pytest

import timestone
from tests.support.console_client import Console, write_samples
from tests.support.stores import LOG, fill
from timestone.errors import InvalidName
from timestone.metrics.records import EVENT_TOPICS, EVENTS_LOG, encode_event
from timestone.reading.named_readers import ReaderId
from timestone_console.api.route import PREFIX
from timestone_console.api.routes import ROUTES
from timestone_console.config import Role

GOLDEN = Path(__file__).parents[1] / "golden"
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "${7*7}",
    "=HYPERLINK(1)",
    "@SUM(1)",
    "-1-1",
    "a\u202egnp.exe",
    "a\u200bb\u2066c",
    "\x1b[31mred\x1b[0m",
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "%2e%2e%2f",
    "a\r\nSet-Cookie: x=1",
    "\ufeff\ufffe",
    "]]>--><!--",
    "x" * 60_000,
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "data"
    write_samples(path, 5)
    with timestone.open(path) as opened:
        log, events = opened.log(LOG), opened.log(EVENTS_LOG)
        for number, one in enumerate(ATTACKS):
            log.append(one.encode(), topic=one, headers=[(one[:1000], one.encode()[:1000])])
            payload = encode_event("connected", {"client": one, "user": one}, time_us=number, node=one)
            events.append(payload, topic=EVENT_TOPICS["connected"])
            try:
                opened.commit_readers({ReaderId(LOG, 0, one[:500]): number})
            except InvalidName:
                pass  # control characters and line ends
        for payload in (
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b'{"n": ' + b"9" * 5000 + b"}",
            b"\xff\xfe" * 1000,
        ):
            log.append(payload, topic="payloads")
    return path


def test_hostile_texts_come_back_as_they_are_and_as_json(store: Path) -> None:
    with Console(store) as console:
        rows = console.get("records", log=LOG, limit=len(ATTACKS), bytes=65_536)["records"]
        assert [row["topic"] for row in rows] == ATTACKS
        assert [row["headers"][0]["name"] for row in rows] == [one[:1000] for one in ATTACKS]
        assert all(
            row["value"]["text"] == one or row["value"]["kind"] == "binary"
            for row, one in zip(rows, ATTACKS, strict=True)
        )
        names = {row["place"]["name"] for row in console.get("readers", limit=100)["readers"]}
        assert ATTACKS[0] in names
        clients = [row["client"] for row in console.get("events", limit=100)["events"]]
        assert clients == [one[:1000] for one in reversed(ATTACKS)]


@pytest.mark.slow
@pytest.mark.parametrize("value", [*ATTACKS[:-1], "\x00", "-1", "9" * 30, "NaN", "null", ""])
def test_hostile_value_of_any_parameter_is_an_answer_or_a_problem(store: Path, value: str) -> None:
    with Console(store, login=False, anonymous=Role.READER) as console:
        for route in ROUTES:
            if route.kind == "stream" or route.method == "POST":
                continue
            for field in route.query.__struct_encode_fields__:
                if "{" + field + "}" in route.path:
                    continue
                path = PREFIX + route.path.format(log=LOG, partition=0, offset=0)
                parameters = (
                    {"log": LOG}
                    if "log" in route.query.__struct_encode_fields__ and "{log}" not in route.path
                    else {}
                )
                found = console.http.get(path, params={**parameters, field: value})
                assert found.status_code in (200, 400, 403, 404, 410, 501, 503), (path, field, found.text)
                if found.status_code != 200:
                    assert json.loads(found.content)["type"].startswith("urn:timestone:problem:")


@pytest.mark.parametrize(
    "part", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "catalog.db", "x" * 300, "telemetry-0"]
)
def test_log_in_a_path_is_a_name_and_never_a_file(store: Path, part: str) -> None:
    with Console(store) as console:
        for end in ("", "/segments", "/offset?offset=1"):
            assert console.http.get(f"{PREFIX}/logs/{part}{end}").status_code in (400, 404)


def test_torn_store_is_shown_up_to_its_tear(tmp_path: Path) -> None:
    fill(tmp_path / "data", 50)
    folder = tmp_path / "data" / f"{LOG}-0"
    with timestone.open(tmp_path / "data") as opened:
        opened.log(LOG).append_many([b"tail"] * 10)
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    segment = max((tmp_path / "copy" / folder.name).glob("*.segment"))
    with segment.open("r+b") as file:
        file.truncate(13)
    with Console(tmp_path / "copy") as console:
        rows = console.get("records", log=LOG, order="newest", limit=100)["records"]
        whole = [row["offset"] for row in rows if row["damage"] is None]
        assert whole[-50:] == list(range(49, -1, -1))
        states = console.get(f"logs/{LOG}")["states"]
        assert sum(states.values()) >= 2 and set(states) != {"sealed"}


def test_log_that_is_deleted_while_it_is_looked_at_is_a_problem(tmp_path: Path) -> None:
    fill(tmp_path / "data", 5)
    fill(tmp_path / "data", 5, log="other")
    with Console(tmp_path / "data") as console:
        assert len(console.get("records", log="other")["records"]) == 5
        with timestone.open(tmp_path / "data") as opened:
            opened.delete_log("other")
        console.get("records", 404, log="other")
        assert len(console.get("records", log=LOG)["records"]) == 5


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4"])
def test_store_of_an_earlier_version_is_shown(tmp_path: Path, version: str) -> None:
    shutil.copytree(GOLDEN / version, tmp_path / "data")
    with Console(tmp_path / "data") as console:
        assert console.get("overview")["server"]["state"] == "stopped"
        names = console.get("logs")["logs"]
        assert names and all(one["error"] is None for one in names)
        for one in names:
            name, partition = one["log"], one["partition"]
            rows = console.get("records", log=name, partition=partition, limit=500)["records"]
            assert len(rows) > 0 and all(row["damage"] is None for row in rows), one
            assert console.get(f"logs/{name}", partition=partition)["records"] == len(rows)
            console.get("topics", log=name, partition=partition)
