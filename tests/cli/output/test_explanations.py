from dataclasses import replace
from typing import Any

import pytest

from timestone.format.damage_report import Damage
from timestone.reading.retention_hold import Pin
from timestone.recovery.segment_report import State
from timestone.repair.inspection_report import LogReport, ReaderReport, SegmentReport, StoreReport
from timestone_cli.output.explanations import explanations, loss, verdict

SEALED = SegmentReport(
    base_offset=0,
    next_offset=100,
    records=100,
    bytes=1000,
    stored_bytes=1000,
    index_bytes=7424,
    first_timestamp_us=1,
    last_timestamp_us=2,
    state="sealed",
    checkpoint=100,
    topics=1,
    damaged_offsets=(),
    lost_records=0,
    lost_bytes=0,
    reason="",
)


def report(segment: SegmentReport = SEALED, *, owner: int | None = None, **of_log: Any) -> StoreReport:
    values: dict[str, Any] = {
        "log": "t",
        "partition": 0,
        "id": 1,
        "epoch": 0,
        "start_offset": 0,
        "end_offset": 100,
        "synced_offset": 100,
        "records": 100,
        "bytes": 1000,
        "stored_bytes": 1000,
        "topics": 1,
        "topic_names_lost": 0,
        "segments": (segment,),
        "strangers": (),
        "put_aside": (),
        "error": "",
    }
    log = LogReport(**{**values, **of_log})
    return StoreReport(
        path="data", owner_pid=owner, deep=False, logs=(log,), readers=(), notes=(), exit_code=0
    )


def test_a_clean_store_needs_no_words() -> None:
    assert list(explanations(report())) == []


def test_unclosed_segments_are_explained_once_while_a_process_writes() -> None:
    segments = (SEALED, replace(SEALED, state="unclosed"), replace(SEALED, state="unclosed"))
    assert list(explanations(report(owner=7, segments=segments))) == [
        "unclosed segments are being written by process 7. Nothing is wrong."
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (report(replace(SEALED, state="unclosed"), owner=7), ["written by process 7", "Nothing is wrong"]),
        (
            report(age_unproven=3),
            ["3 segments older than retention_ms by the timestamps, but not by", "Next: nothing"],
        ),
        (report(replace(SEALED, state="unclosed")), ["ended without closing", "Next: open the store"]),
        (
            report(replace(SEALED, state="torn", lost_records=2, lost_bytes=40)),
            ["torn tail: after offset 100 come 2 records, 40 bytes", "Next: open the store", ".lost"],
        ),
        (
            report(
                replace(SEALED, state="torn", next_offset=40, checkpoint=100, reason="the index is short")
            ),
            [
                "damaged: offsets 40 to 99 were on the disk",
                "the index is short",
                "Next: restore the files",
            ],
        ),
        (
            report(
                replace(
                    SEALED,
                    state="torn",
                    records=0,
                    next_offset=0,
                    checkpoint=0,
                    lost_bytes=40,
                    reason="no header",
                )
            ),
            ["nothing is left of its index (no header)", "40 bytes", "restore the index", ".lost"],
        ),
        (
            report(replace(SEALED, state="torn", lost_bytes=40), owner=7),
            ["Process 7 is writing", "check again"],
        ),
        (
            report(replace(SEALED, state="damaged", damaged_offsets=(3,), reason="1 damaged record")),
            [
                "the record at offset 3 cannot be verified",
                "all others are readable",
                "Next: restore the files",
            ],
        ),
        (
            report(replace(SEALED, state="damaged", damaged_offsets=tuple(range(20)), reason="x")),
            ["the records at offsets 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"],
        ),
        (
            report(replace(SEALED, state="damaged", reason="the index is short")),
            ["the index is short", "Next:"],
        ),
        (
            report(replace(SEALED, state="orphan", reason="the index is missing")),
            ["the index is missing", "Next:"],
        ),
        (report(error="version 9"), ["t-0 cannot be read: version 9"]),
        (report(put_aside=("x.lost",)), ["put aside x.lost", "Nothing reads these files"]),
        (report(strangers=("notes.txt",)), ["foreign files, ignored: notes.txt"]),
        (report(missing=((5, 9),)), ["no segment holds offsets 5 to 8", "readers get OffsetsLost", ".lost"]),
        (report(topic_names_lost=1), ["the names of 1 topic are lost"]),
        (replace(report(), notes=("the catalogue is damaged",)), ["the catalogue is damaged"]),
    ],
)
def test_every_state_is_explained_with_the_next_step(given: StoreReport, words: list[str]) -> None:
    (sentence,) = explanations(given)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("state", State)
def test_no_state_is_forgotten(state: State) -> None:
    said = list(explanations(report(replace(SEALED, state=str(state), reason="why"))))
    assert len(said) == (0 if state in (State.SEALED, State.CLOSED) else 1)


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (SEALED, ""),
        (replace(SEALED, lost_bytes=2048), "2.0 KiB"),
        (replace(SEALED, lost_records=1, lost_bytes=10), "1 record, 10 bytes"),
        (replace(SEALED, damaged_offsets=(1, 2)), "2 damaged"),
        (replace(SEALED, damaged_offsets=(1,), lost_bytes=5), "5 bytes, 1 damaged"),
    ],
)
def test_loss_in_a_table_cell(segment: SegmentReport, text: str) -> None:
    assert loss(segment) == text


@pytest.mark.parametrize(
    ("code", "words"),
    list(enumerate(["clean", "unclosed but consistent", "torn tail", "corruption", "unreadable"])),
)
def test_the_verdict_names_state_and_exit_code(code: int, words: str) -> None:
    assert verdict(replace(report(), exit_code=code)).startswith(f"{words} (exit code {code}; ")
    assert "every record checked" in verdict(replace(report(), deep=True))


def test_what_the_scrubber_has_found_is_said_with_the_next_step() -> None:
    damage = Damage("t", 0, 0, 3, 5, "the bytes do not match their checksum", 1_700_000_000_000_000)
    (sentence,) = explanations(replace(report(), damage=(damage,)))
    assert sentence.startswith(
        "t-0, segment 0: offsets 3 to 4: the bytes do not match their checksum. The scrubber"
    )
    assert "on 2023-11-14" in sentence
    assert "--deep" in sentence
    many = list(explanations(replace(report(), damage=(damage,) * 20)))
    assert many[-1] == "the scrubber has found 20 damaged runs of records in all."


def test_the_last_failed_upload_is_explained_with_the_next_step() -> None:
    (sentence,) = explanations(replace(report(), bucket="s3://b", bucket_error="s3://b: no answer"))
    assert sentence.startswith("the last upload failed: s3://b: no answer. Next: ")


def test_a_reader_overtaken_by_retention_is_marked() -> None:
    reader = ReaderReport("t", 0, "billing", offset=5, committed_us=1, lag=90, missed=10)
    behind = replace(report(), readers=(reader, replace(reader, name="audit", missed=0)))
    (sentence,) = explanations(behind)
    assert sentence.startswith(
        "reader 'billing' of t-0: retention has deleted 10 offsets that it had not read."
    )


def test_pin_says_what_it_holds_and_up_to_what() -> None:
    reader = ReaderReport("t", 0, "billing", offset=5, committed_us=1, lag=90, missed=0, unread_bytes=3 << 20)
    pin = Pin(max_bytes=1 << 30, max_age_ms=36 * 3600 * 1000)
    (sentence,) = explanations(replace(report(), readers=(replace(reader, pin=pin),)))
    assert sentence.startswith(
        "reader 'billing' of t-0 pins retention at offset 5: 3.0 MiB from there on, "
        "up to 1.0 GiB more than retention keeps or records 1.5 d old."
    )
    (sentence,) = explanations(replace(report(), readers=(replace(reader, pin=Pin(max_bytes=7)),)))
    assert "up to 7 bytes more than retention keeps." in sentence


def test_gaps_of_a_compacted_log_are_explained() -> None:
    (sentence,) = explanations(report(removed=99, records=1))
    assert sentence == (
        "t-0: compacted: of 100 records, 99 were superseded by newer ones of their topics and removed; "
        "their offsets are gaps. Nothing is wrong."
    )


def test_pin_of_the_server_asks_for_nothing_and_is_silent_while_it_holds_nothing() -> None:
    """Retained messages of the MQTT front hold what only they still need; to release that is not for the user."""
    reader = ReaderReport("mqtt", 0, "mqtt.retained", 5, 7, lag=0, missed=0, pin=Pin(max_bytes=7))
    assert list(explanations(replace(report(), readers=(reader,)))) == []
    (sentence,) = explanations(replace(report(), readers=(replace(reader, unread_bytes=3),)))
    assert "which belongs to the server" in sentence
    assert "--release" not in sentence
