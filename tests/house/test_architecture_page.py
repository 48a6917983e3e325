"""docs/architecture.md has every room of every package and the file of it to read first."""

import re
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ON_THE_MAP = {"timestone", "mqtt_front", "pyspark_timestone", "tiering", "console", "cluster"}
MOST_OWN_WORDS = 20


def rooms(package: str) -> list[Path]:
    return sorted(path.parent.relative_to(ROOT) for path in (ROOT / package).glob("*/__init__.py"))


@pytest.mark.parametrize("package", sorted(ON_THE_MAP & PACKAGES.keys()))
def test_page_has_every_room_with_a_file_that_exists(package: str) -> None:
    for room in rooms(package):
        row = re.search(rf"\]\(\.\./{re.escape(str(room))}\)[^|]*\|([^|]*)\|", PAGE)
        assert row, f"{room} has no row in docs/architecture.md"
        first = re.findall(r"`(\w+\.py)`", row[1])
        assert first and any((ROOT / room / name).exists() for name in first), f"{room}: {first}"


def test_glossary_stays_short() -> None:
    table = PAGE.partition("## Words")[2].partition("\n## ")[0]
    words = re.findall(r"^\| (?!word)[^|-][^|]* \|", table, re.MULTILINE)
    assert 10 <= len(words) <= MOST_OWN_WORDS
