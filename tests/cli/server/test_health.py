"""Health of a real store: full, closed, and with a loop that is late."""

import asyncio
import json
from pathlib import Path

import timestone
from timestone_cli.server.health import Health, report
from timestone_cli.server.process_metrics import LoopWatch


def test_a_server_without_free_space_is_not_ready(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=1 << 60) as store:
        checks = asyncio.run(Health(store, [], LoopWatch()).ready())
    assert {name for name, why in checks.items() if why} == {"free_space"}
    assert "(min_free_bytes)" in str(checks["free_space"])


def test_a_closed_store_is_not_ready(tmp_path: Path) -> None:
    store = timestone.open(tmp_path / "data", min_free_bytes=0)
    store.close()
    checks = asyncio.run(Health(store, [], LoopWatch()).ready())
    assert list(checks) == ["store_open"] and checks["store_open"]


def test_a_loop_that_was_late_by_more_than_a_second_is_not_live(tmp_path: Path) -> None:
    watch = LoopWatch()
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        health = Health(store, [], watch)
        assert health.live() == {"event_loop": None}
        watch.last_late_ns = 1_500_000_000
        assert health.live() == {"event_loop": "its last call was 1.5 s late, limit 1 s"}
    passed, text = report(health.live())
    assert not passed
    assert json.loads(text)["checks"]["event_loop"]["reason"].startswith("its last call was 1.5 s late")
