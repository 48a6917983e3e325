"""What `timestone pipeline status` prints for a person."""

from dataclasses import replace

import pytest

from timestone_cli.output.pipeline_table import print_status
from timestone_pipeline import PipelineStatus
from timestone_pipeline.status import PartitionStatus, TableStatus

STATUS = PipelineStatus(
    tables=(TableStatus("bronze", 1_000_000, 12, 5_000_000), TableStatus("clean", 999_990, 12, 7_000_000)),
    logs=(PartitionStatus("mqtt", 0, 1_000_000, 1_000_250, 250), PartitionStatus("gone", 1, 7, None, None)),
    problems={"no device": 10},
    late=3,
    batches=40,
    last_commit_us=1_767_225_600_000_000,
    age_s=12.4,
    newest_us=None,
    closed_us={1: 1_767_225_600_000_000},
    exact=True,
)


def printed(capsys: pytest.CaptureFixture[str], status: PipelineStatus) -> str:
    print_status("tables", status)
    return capsys.readouterr().out


def test_everything_that_matters_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, STATUS)
    lines = [line.split() for line in text.splitlines()]
    assert text.startswith("tables: 40 batches, last written 12 s ago\n")
    assert ["bronze", "1,000,000", "12", "4.8", "MiB"] in lines
    assert ["mqtt-0", "1,000,000", "1,000,250", "250"] in lines
    assert ["gone-1", "7", "?", "?"] in lines
    assert ["no", "device", "10"] in lines
    assert "windows of 1 min are closed up to 2026-01-01 00:00" in text
    assert "3 late messages not in all windows yet: timestone pipeline backfill" in text
    assert text.endswith("bronze = clean + dead_letters + duplicates\n")
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_counts_that_do_not_add_up_are_shouted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bronze is NOT" in printed(capsys, replace(STATUS, exact=False))
    assert "never written" in printed(capsys, replace(STATUS, age_s=None, logs=(), problems={}))
