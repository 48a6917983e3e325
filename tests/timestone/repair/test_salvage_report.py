"""The exit code and the encoding of a salvage report."""

import json
from dataclasses import replace

import pytest

from timestone.repair.salvage_report import (
    EXIT_LOSSES,
    EXIT_NOTHING,
    EXIT_WHOLE,
    LogSalvage,
    Loss,
    SalvageReport,
)

WHOLE = LogSalvage("a", 0, 1, 0, 10, 10, 100, 2, 0, ((0, 10),), (), 0, 0, (), "")
LOSSY = replace(WHOLE, records=9, lost=(Loss(4, 5, "why"),))
GONE = LogSalvage("b", 0, 0, 0, 0, 0, 0, 0, 0, (), (), 0, 0, (), "no file has the identity of the log")


@pytest.mark.parametrize(
    ("logs", "notes", "code"),
    [
        ((), (), EXIT_WHOLE),
        ((WHOLE,), (), EXIT_WHOLE),
        ((replace(WHOLE, from_aside=3, later_count=1),), (), EXIT_WHOLE),
        ((WHOLE,), ("no catalogue",), EXIT_LOSSES),
        ((WHOLE, LOSSY), (), EXIT_LOSSES),
        ((replace(WHOLE, topic_names_lost=1),), (), EXIT_LOSSES),
        ((WHOLE, GONE), (), EXIT_LOSSES),
        ((GONE,), (), EXIT_NOTHING),
        ((replace(LOSSY, records=0),), (), EXIT_NOTHING),
    ],
)
def test_exit_code_follows_the_result(
    logs: tuple[LogSalvage, ...], notes: tuple[str, ...], code: int
) -> None:
    assert SalvageReport("data", "out", logs, notes).exit_code == code


def test_report_is_encoded_as_json() -> None:
    found = json.loads(json.dumps(SalvageReport("data", "out", (LOSSY,), ()).to_json()))
    assert found["exit_code"] == EXIT_LOSSES
    assert found["logs"][0]["lost"] == [{"first": 4, "end": 5, "reason": "why"}]
    assert LOSSY.lost_count == 1
