"""The tier as a service of `serve`."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.waiting import wait_for, wait_for_seals
from timestone_cli.server.exposition import exposition, named
from timestone_cli.server.tier import TierService
from timestone_tiering import StoreTier, TierConfig


def test_it_uploads_between_start_and_stop_and_has_figures(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", log=timestone.LogConfig(segment_entries=10)) as store:
        log = store.log("telemetry")
        for _ in range(3):
            log.append_many([b"x"] * 10)
        wait_for_seals(log)
        config = TierConfig(url=f"file://{tmp_path}/bucket", upload_bytes_per_s=1 << 30)
        service = TierService(StoreTier(store, config))
        asyncio.run(service.start())
        assert service.describe() == [f"tier  {config.url}, generation 1, at most 1.0 GiB/s"]
        wait_for(lambda: service.status()["uploaded_segments"] == 2)
        page = exposition(named("tier", service.metrics()), openmetrics=False)
        asyncio.run(service.stop())
    assert "timestone_tier_uploaded_segments_total 2" in page
    assert "# TYPE timestone_tier_stored_bytes gauge" in page
    assert service.status()["running"] == 0


@pytest.mark.slow
def test_serve_uploads_what_it_seals_and_a_second_store_is_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with Running("serve", "--mqtt", "127.0.0.1:0", "--tier", url, cwd=tmp_path) as running:
        assert f"tier  {url}, generation 1" in running.lines_until("ready")
        code, _, _ = running.stop()
        assert code == 0
    refused = command("serve", "--data", "other", "--mqtt", "127.0.0.1:0", "--tier", url, cwd=tmp_path)
    assert refused.returncode != 0
    assert "another store uploads to this prefix (generation 1" in refused.stderr


def test_serve_refuses_a_url_before_it_creates_anything(tmp_path: Path) -> None:
    refused = command("serve", "--tier", "s3://key:secret@bucket/x", cwd=tmp_path)
    assert refused.returncode == 64
    assert "credentials do not belong into it" in refused.stderr
    assert "secret" not in refused.stderr + refused.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_serve_without_the_client_of_object_stores_creates_nothing(tmp_path: Path) -> None:
    """It made a store first and exited with 1, so that systemd started it again and again."""
    without = (
        "import sys; sys.modules['obstore'] = None; from timestone_cli.main import main; sys.exit(main())"
    )
    words = ["serve", "--mqtt", "127.0.0.1:0", "--tier", "s3://bucket/x"]
    refused = subprocess.run(
        [sys.executable, "-c", without, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (refused.returncode, refused.stdout) == (64, ""), refused.stderr
    assert "object storage needs pip install '.[s3]'" in refused.stderr
    assert list(tmp_path.iterdir()) == []
