"""The history in a bucket as a person sees it."""

from dataclasses import replace

import pytest

from timestone_cli.output.tier_table import print_status, print_verification
from timestone_tiering.operations.status import BucketStatus, LogStored, Waiting
from timestone_tiering.operations.verification import LogVerification, ObjectDamage
from timestone_tiering.uploading.ownership import ClaimFacts

LOG = LogStored(
    log="telemetry",
    partition=3,
    id="0123456789abcdef",
    start_offset=1000,
    end_offset=4_001_000,
    segment_count=1200,
    records=4_000_000,
    stored_bytes=3 << 30,
    first_timestamp_us=1_767_225_600_000_000,
    last_timestamp_us=1_767_229_200_000_000,
    written_us=1_767_229_201_000_000,
    missing=((2000, 2010),),
    waiting=Waiting(2, 5 << 20, 1234),
)
STATUS = BucketStatus(
    "s3://bucket/plant", ClaimFacts(2, "broker-1", 4711, 1_767_225_600_000_000), False, (LOG,)
)


def test_status_has_every_figure_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_status(STATUS)
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    for part in (
        "telemetry-3",
        "1000",
        "4001000",
        "4,000,000",
        "1,200",
        "3.0 GiB",
        "2026-01-01 00:00:00Z",
        "2026-01-01 01:00:00Z",
        "2 segments, 5.0 MiB, 1,234 newest records",
        "offsets 2000 to 2009 were lost",
        "ANOTHER store",
        "broker-1, pid 4711",
    ):
        assert part in " ".join(text.split()), part


def test_records_of_a_segment_that_grows_are_not_uploaded(capsys: pytest.CaptureFixture[str]) -> None:
    for waiting, text in (
        (Waiting(0, 0, 24), "24 newest records"),
        (Waiting(0, 0, 1), "1 newest record"),
        (Waiting(0, 0), "nothing"),
    ):
        print_status(replace(STATUS, logs=(replace(LOG, waiting=waiting),)))
        assert text in " ".join(capsys.readouterr().out.split())


def test_a_prefix_without_claim_and_logs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(BucketStatus("s3://bucket/plant", None, None, ()))
    assert capsys.readouterr().out == "s3://bucket/plant: 0 logs, 0 bytes; no store has claimed it\n"
    print_status(replace(STATUS, is_own_claim=None, logs=(replace(LOG, waiting=None),)))
    assert "not uploaded" not in capsys.readouterr().out


def test_damage_is_named_with_object_and_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    damage = (
        ObjectDamage("a/segments/x.segment", "its bytes are wrong", 7, 8),
        ObjectDamage("a/segments/y.segment", "it is missing", 10, 20),
        ObjectDamage("a/topics/z.topics", "it is missing"),
    )
    print_verification(LogVerification("telemetry", 0, 0, 30, 8, 2048, damage))
    assert capsys.readouterr().out.splitlines() == [
        "telemetry-0: offsets [0, 30), 8 objects, 2.0 KiB",
        "  a/segments/x.segment: offset 7: its bytes are wrong",
        "  a/segments/y.segment: offsets 10 to 19: it is missing",
        "  a/topics/z.topics: it is missing",
    ]
