import shutil
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.console_client import Console, write_samples
from tests.support.mqtt_server import mqtt_server
from tests.support.paho_client import PahoClient
from tests.support.stores import LOG, fill
from timestone_cli.server.collection import Collection
from timestone_cli.server.figures import Figures


def test_logs_are_paged_by_name_and_partition(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        for number in range(25):
            store.log(f"log{number % 5}", number // 5)
    write_samples(tmp_path / "data", 2)
    with Console(tmp_path / "data") as console:
        found: list[tuple[str, int]] = []
        after: dict[str, Any] = {}
        while True:
            page = console.get("logs", limit=7, server=False, **after)
            found += [(row["log"], row["partition"]) for row in page["logs"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert found == sorted((f"log{number % 5}", number // 5) for number in range(25))
        assert page["total"] == 25
        assert console.get("logs")["total"] == 26
        assert console.get("logs", text="log3")["total"] == 5
        console.get("logs", 400, after="nonsense")


def test_log_has_the_rate_of_the_last_two_samples_in_its_row_and_on_its_own(tmp_path: Path) -> None:
    with mqtt_server(tmp_path / "data") as server, PahoClient("writing") as writing:
        figures = Figures(Collection(server.store, [server.front]), 3_600_000)
        server.run(figures.start())
        server.run(figures._sample())
        writing.connect(server.address)
        for _ in range(20):
            writing.publish("t/1", b"x", 1)
        server.run(figures._sample())
        with Console(tmp_path / "data") as console:
            (row,) = console.get("logs", text="mqtt")["logs"]
            assert row["appended_per_s"] > 0
            assert console.get("logs/mqtt")["row"]["appended_per_s"] == row["appended_per_s"]
        server.run(figures.stop())


def test_log_that_cannot_be_read_says_why_beside_the_others(tmp_path: Path) -> None:
    fill(tmp_path / "data", 3)
    fill(tmp_path / "data", 3, log="broken")
    (tmp_path / "data" / "broken-0" / "topics").unlink()
    with Console(tmp_path / "data") as console:
        rows = {row["log"]: row for row in console.get("logs")["logs"]}
        assert rows[LOG]["error"] is None and "topic dictionary" in rows["broken"]["error"]


def test_segments_have_states_gaps_and_damage_as_inspect_has_them(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100, segment_entries=20)
    folder = tmp_path / "data" / f"{LOG}-0"
    third = folder / f"{40:020d}.segment"
    damaged = bytearray(third.read_bytes())
    damaged[3] ^= 1
    third.write_bytes(damaged)
    with Console(tmp_path / "data") as console:
        found = console.get(f"logs/{LOG}/segments", limit=3)
        assert [one["base_offset"] for one in found["segments"]] == [0, 20, 40] and found["next"] == 40
        rest = console.get(f"logs/{LOG}/segments", after=40)
        assert [one["base_offset"] for one in rest["segments"]] == [60, 80] and rest["next"] is None
        assert {one["state"] for one in rest["segments"]} == {"sealed"}
        assert rest["total"] == 5
        around = console.get(f"logs/{LOG}/segments", at=75, limit=2)
        assert [one["base_offset"] for one in around["segments"]] == [20, 40] and around["next"] == 40
        assert console.get(f"logs/{LOG}/segments", at=2**60)["segments"][-1]["base_offset"] == 80
        one = console.get(f"logs/{LOG}")
        assert one["records"] == 100 and sum(one["states"].values()) == 5
        assert {"name": "segment_entries", "value": 20}.items() <= next(
            setting for setting in one["settings"] if setting["name"] == "segment_entries"
        ).items()


def test_segments_in_trouble_come_first_then_the_newest(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100, segment_entries=20)
    (tmp_path / "data" / f"{LOG}-0" / f"{20:020d}.index").unlink()
    with Console(tmp_path / "data") as console:
        found = console.get(f"logs/{LOG}/segments", order="trouble", limit=3)
        rows = [(one["base_offset"], one["state"]) for one in found["segments"]]
        assert rows == [(20, "orphan"), (80, "sealed"), (60, "sealed")] and found["next"] is None
        for extra in ({"at": 1}, {"after": 1}):
            console.get(f"logs/{LOG}/segments", 400, order="trouble", **extra)
        shown = console.get(f"logs/{LOG}/map")
        assert shown["segments"] == 5
        cells = [(one["state"], one["base_offset"], one["next_offset"]) for one in shown["cells"]]
        assert ("orphan", 20) in [cell[:2] for cell in cells]


def test_offsets_and_times_lead_to_each_other(tmp_path: Path) -> None:
    fill(tmp_path / "data", 10)
    with Console(tmp_path / "data") as console:
        at = console.get(f"logs/{LOG}/offset", offset=4)
        back = console.get(f"logs/{LOG}/offset", time=at["timestamp_us"])
        assert back["timestamp_us"] == at["timestamp_us"] and back["offset"] <= 4
        assert console.get(f"logs/{LOG}/offset", time=2**60)["timestamp_us"] is None
        console.get(f"logs/{LOG}/offset", 400)
        console.get(f"logs/{LOG}/offset", 400, time=1, offset=1)


@pytest.mark.parametrize("missing", ["catalog.db", "LOCK"])
def test_copy_without_a_file_is_read(tmp_path: Path, missing: str) -> None:
    fill(tmp_path / "data", 5)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (tmp_path / "copy" / missing).unlink(missing_ok=True)
    with Console(tmp_path / "copy") as console:
        assert console.get("logs")["logs"][0]["end_offset"] == 5
        assert console.get("overview")["server"]["state"] == "stopped"
        assert console.get("readers")["readers"] == []
