"""Metrics of a real store with more readers than have lines of their own."""

from pathlib import Path

import pytest

import timestone
from timestone_cli.server import store_metrics as module
from timestone_cli.server.store_metrics import store_metrics


def test_only_the_readers_furthest_behind_have_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READER_COUNT", 2)
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        log = store.log("telemetry")
        log.append_many([b"x"] * 10)
        for name, offset in (("slow", 1), ("quick", 9), ("slower", 0)):
            with log.reader(name=name) as reader:
                reader.commit(offset)
        found = {one.name: one.samples for one in store_metrics(store)}
    assert [(labels["reader"], lag) for labels, lag in found["timestone_reader_lag"]] == [
        ("slower", 10),
        ("slow", 9),
    ]
    assert found["timestone_readers_left_out"] == [({}, 1)]


def test_a_closed_store_still_has_its_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = timestone.open(tmp_path / "data", min_free_bytes=0)
    store.close()
    assert next(iter(store_metrics(store))).name == "timestone_build"
    assert "the metrics of the store are incomplete" in caplog.text
