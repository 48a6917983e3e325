from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timestone
from timestone.view import view_store
from timestone_console.reading import topic_table
from timestone_console.reading.topic_table import TopicTable, TopicTables

TOPICS = ["a", "a/b", "a/b/c", "a b", "a/d", "/x", "/x/y", "", "z/" + "q/" * 20, "A"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with timestone.open(tmp_path / "data") as opened:
        log = opened.log("mqtt")
        for number, topic in enumerate(TOPICS):
            if topic:
                log.append_many([b"x" * (number + 1)] * (number + 1), topic=topic)
        log.append(b"no topic")
    return tmp_path / "data"


def nodes(
    table: TopicTable, under: str | None, sort: str = "name", after: int = 0, limit: int = 100
) -> list[Any]:
    return table.level(under, sort, after, limit)[0]


def test_level_has_each_child_once_with_the_sums_of_what_is_below(store: Path) -> None:
    with view_store(store) as view:
        table = TopicTable(view.log("mqtt"))
        table.follow()
        first = {node.name: node for node in nodes(table, None)}
        assert sorted(first) == ["", "A", "a", "a b", "z"]
        assert (first["a"].is_topic, first["a"].topics_below) == (True, 3)
        assert first["a"].records == 1 + 2 + 3 + 5
        assert first["a"].bytes == 1 + 4 + 9 + 25
        assert (first[""].is_topic, first[""].topics_below) == (False, 2)
        assert [(node.name, node.path, node.is_topic) for node in nodes(table, "a")] == [
            ("b", "a/b", True),
            ("d", "a/d", True),
        ]
        assert [node.path for node in nodes(table, "a/b")] == ["a/b/c"]
        assert [node.path for node in nodes(table, "")] == ["/x"]
        assert [node.path for node in nodes(table, "/x")] == ["/x/y"]
        assert nodes(table, "nothing") == []


def test_counts_equal_those_of_the_records(store: Path) -> None:
    with view_store(store) as view:
        log = view.log("mqtt")
        table = TopicTable(log)
        table.follow()
        counted = {node.path: node for node in table.chosen(np.arange(len(log.topics)), "name", 0, 100)}
        read = list(log.reader("earliest"))
        for topic, node in counted.items():
            mine = [record for record in read if record.topic == topic]
            assert node.records == len(mine)
            assert node.bytes == sum(len(record.payload) for record in mine)
            assert node.last_offset == mine[-1].offset == table.last_offset(topic)
            assert node.last_us == mine[-1].timestamp_us
        assert table.last_offset("nothing") is None


def test_orders_and_pages_meet_each_child_once(store: Path) -> None:
    with view_store(store) as view:
        table = TopicTable(view.log("mqtt"))
        table.follow()
        by_bytes = [node.bytes for node in nodes(table, None, "bytes")]
        assert by_bytes == sorted(by_bytes, reverse=True)
        paged = [nodes(table, None, "bytes", after, 2) for after in range(0, 6, 2)]
        assert sorted(node.name for page in paged for node in page) == ["", "A", "a", "a b", "z"]
        found = table.with_text("b", table.ids)
        assert [table.log.topics.name(int(one)) for one in found] == ["a/b", "a/b/c", "a b"]
        found = table.with_text("c", table.matching("a/#"))
        assert [table.log.topics.name(int(one)) for one in found] == ["a/b/c"]
        assert table.matching("nothing/+").tolist() == []


def test_table_follows_what_is_appended(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_table, "_LOOK_S", 0.0)
    with view_store(store) as view:
        table = TopicTable(view.log("mqtt"))
        table.follow()
        with timestone.open(store) as opened:
            opened.log("mqtt").append_many([b"12"] * 7, topic="new/topic")
            opened.log("mqtt").append_many([b"12"] * 3, topic="a")
            table.follow()
        assert nodes(table, "new")[0].records == 7
        assert next(node for node in nodes(table, None) if node.name == "a").records == 1 + 2 + 3 + 5 + 3
        assert table.total_bytes == sum(node.bytes for node in nodes(table, None))


def test_look_that_is_far_behind_leaves_records_out(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_table, "FIRST_RECORDS", 10)
    monkeypatch.setattr(topic_table, "_LOOK_S", 0.0)
    with view_store(store) as view:
        table = TopicTable(view.log("mqtt"))
        table.follow()
        assert table.to_offset - table.from_offset == 10 and table.left_out == 0
        with timestone.open(store) as opened:
            opened.log("mqtt").append_many([b"1"] * 25, topic="a")
            table.follow()
        assert table.left_out == 15


def test_tables_are_kept_by_log_and_dropped_when_many(store: Path) -> None:
    with view_store(store) as view:
        tables = TopicTables()
        first = tables.of(view.log("mqtt"))
        assert tables.of(view.log("mqtt")) is first
