"""Prose follows the manuals of SQLite, PostgreSQL and Kafka. The phrases below have a plainer form; their number may
only fall: a change that removes some lowers the limit of the folder."""

import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, tracked_files

PLAINER = {
    r"whoever|whatever|nobody|somebody|anybody": "name the part: the caller, the owner, another process, no process",
    r"(?:is|are|was|were|be|been|being) told": "name the call, the error or the log line",
    r"goes on|go on|went on": "continues",
    r"anew": "again",
    r"for ever": "without end, permanently, or the limit",
    r"meanwhile": "in the meantime has a subject: name what happens at the same time",
    r"mak(?:es?|ing) (?:no )?sense": "is (not) valid",
    r"that is none|is no [a-z]+ of": "is not a",
    r"lets? go of": "closes, releases",
}
"""Phrase -> what to write instead."""

LIMITS = {
    "timestone": 164,
    "mqtt_front": 166,
    "pyspark_timestone": 55,
    "cli": 27,
    "pipeline": 19,
    "bench": 26,
    "examples": 3,
    "docs": 168,
    "tests": 316,
    ".": 7,
}
"""How many may stand in a folder; `.` is the root of the repository. Zero is the goal."""

PHRASE = re.compile(rf"\b(?:{'|'.join(PLAINER)})\b", re.IGNORECASE)


def folder_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "."


def findings(folder: str) -> list[str]:
    found = []
    for path in tracked_files():
        if (
            folder_of(path) != folder
            or path.suffix not in {".py", ".pyx", ".md"}
            or path.name == Path(__file__).name
        ):
            continue
        text = (ROOT / path).read_text("utf-8")
        for match in PHRASE.finditer(re.sub(r"\n *", " ", text)):
            found.append(f"{path}: … {match.string[max(0, match.start() - 40) : match.end() + 20]} …")
    return found


@pytest.mark.parametrize("folder", LIMITS)
def test_prose_avoids_private_idiom(folder: str) -> None:
    found = findings(folder)
    assert len(found) <= LIMITS[folder], f"{len(found)} in {folder}, at most {LIMITS[folder]}:\n" + "\n".join(
        found
    )
