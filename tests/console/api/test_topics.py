from pathlib import Path
from typing import Any

import timestone
from mqtt_front.codec.packets import Puback, Publish
from tests.support.console_client import Console
from tests.support.control_server import controlled_server
from tests.support.mqtt_clients import RawClient
from tests.support.stores import LOG, fill


def test_topics_need_a_log(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    with Console(tmp_path / "data") as console:
        console.get("topics", 400)
        console.get("topics/value", 400, log=LOG)


def test_topics_are_a_tree_a_search_and_values(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("mqtt")
        for number in range(30):
            log.append(b'{"t": %d, "s": {"n": 1.5}}' % number, topic=f"plant/{number % 3}/t")
        log.append(b"\xff\x00", topic="plant/raw")
    with Console(tmp_path / "data") as console:
        level = console.get("topics", log="mqtt")
        assert [(one["path"], one["topics_below"], one["share"]) for one in level["nodes"]] == [
            ("plant", 4, 1.0)
        ]
        below = console.get("topics", log="mqtt", under="plant", sort="records")
        assert [one["records"] for one in below["nodes"]] == [10, 10, 10, 1] and below["next"] is None
        found = console.get("topics/search", log="mqtt", filter="plant/+/t", text="1", limit=1)
        assert [one["topic"] for one in found["topics"]] == ["plant/1/t"] and found["total"] == 1
        console.get("topics/search", 400, log="mqtt", filter="plant/#/t")
        values = console.get("topics/value", log="mqtt", topic="plant/2/t", limit=3)
        assert [one["value"]["text"] for one in values["values"]] == [
            f'{{"t": {number}, "s": {{"n": 1.5}}}}' for number in (29, 26, 23)
        ]
        assert values["numbers"] == ["t", "s.n"]
        earlier = console.get("topics/value", log="mqtt", topic="plant/2/t", limit=30, before=values["next"])
        assert len(earlier["values"]) == 7 and earlier["next"] in (None, 0)
        assert console.get("topics/value", log="mqtt", topic="plant/raw")["numbers"] == []
        console.get("topics/value", 400, log="mqtt", topic="plant/+/t")


def test_topic_with_a_retained_message_is_marked(tmp_path: Path) -> None:
    with controlled_server(tmp_path / "data") as server, RawClient(server.address, 4) as client:
        client.connect("c", clean=True)
        client.send(
            Publish("kept", b"x", 1, retain=True, packet_id=1), Publish("plain", b"x", 1, packet_id=2)
        )
        client.expect(Puback)
        client.expect(Puback)
    with Console(tmp_path / "data") as console:  # what the server has saved at its end
        values = {one: console.get("topics/value", log="mqtt", topic=one) for one in ("kept", "plain")}
    assert {one: found["is_retained"] for one, found in values.items()} == {"kept": True, "plain": False}


def test_number_of_a_topic_is_a_series(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("mqtt")
        for number in range(50):
            log.append(b'{"t": %d}' % number, topic="a")
            log.append(b"x", topic="b")
        first, last = log.record(0).timestamp_us, log.record(99).timestamp_us
    with Console(tmp_path / "data") as console:

        def series(topic: str, points: int = 240) -> Any:
            asked = f"topics/series?log=mqtt&topic={topic}&path=t&from={first}&to={last}&points={points}"
            return console.http.get(f"/api/v1/{asked}").json()

        assert series("a")["values"] == list(range(50)) and not series("a")["is_sampled"]
        few = series("a", 10)
        assert few["is_sampled"] and len(few["values"]) <= 10 and few["values"][-1] == 49
        assert series("b")["values"] == []
