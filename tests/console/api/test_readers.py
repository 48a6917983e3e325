from pathlib import Path

import pytest

import timestone
from tests.support.console_client import Console
from tests.support.stores import LOG, fill
from timestone.reading.named_readers import ReaderId
from timestone.reading.retention_hold import Pin
from timestone_console.api.readers import kind_of


def test_readers_are_searched_sorted_and_paged(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    with timestone.open(tmp_path / "data") as store:
        store.commit_readers({ReaderId(LOG, 0, f"reader {number}"): number for number in range(30)})
        store.commit_readers({ReaderId(LOG, 0, "bill"): 100}, pin=Pin(max_bytes=7))
    with Console(tmp_path / "data") as console:
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            page = console.get("readers", limit=9, after=after)
            found += [row["place"]["lag"] for row in page["readers"]]
            after = page["next"]
        assert found == [100 - number for number in range(30)] + [0]
        one = console.get("readers", text="bill")["readers"][0]
        assert (one["pin"], one["catch_up_s"], one["kind"]) == (
            {"max_age_ms": 0, "max_bytes": 7, "held_bytes": 0},
            0.0,
            "reader",
        )
        assert console.get("readers", sort="name", limit=1)["readers"][0]["place"]["name"] == "bill"
        assert console.get("readers", log="other")["total"] == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("$share/a/b", "shared"), ("mqtt.retained", "server"), ("spark-query", "reader")]
)
def test_kind_is_told_by_the_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
