"""docs/conformance.md lists every statement, trap and pitfall once, with existing tests."""

import re

import pytest

from tests.house.tree import ROOT

PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")

# Number of statements by section of the specification.
MQTT_5 = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2,
    "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2,
    "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
MQTT_3_1_1 = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.3.1": 1,
    "4.3.2": 2, "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2,
    "6.0.0": 4, "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip
ABSENT = {"2.2.1-1"}
"""MQTT 5 has no statement of this number."""


def rows(heading: str) -> dict[str, str]:
    """Return the last column of the table below a heading, by its first column."""
    body = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+?) \| [^|]+ \| (.+) \|$", body, re.MULTILINE)[1:]
    table = {first: last for first, last in found if not first.startswith("-")}
    assert len(table) == len([first for first, _ in found if not first.startswith("-")]), "one is there twice"
    return table


def statements(counts: dict[str, int]) -> set[str]:
    return {f"{section}-{number}" for section, count in counts.items() for number in range(1, count + 1)}


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("The traps", {str(number) for number in range(1, 56)}),
        ("The pitfalls of others", {f"P{number}" for number in (*range(30, 54), *range(60, 74))}),
        ("MQTT 5", statements(MQTT_5) - ABSENT),
        ("MQTT 3.1.1", statements(MQTT_3_1_1)),
    ],
)
def test_page_covers_or_excuses_every_statement(heading: str, expected: set[str]) -> None:
    table = rows(heading)
    assert set(table) == expected
    for what, covered in table.items():
        assert re.fullmatch(r"(`[\w/]+::test_\w+`(, )?)+|—: \S.*", covered), f"{what}: {covered}"


def test_page_names_only_existing_tests() -> None:
    named = set(re.findall(r"`([\w/]+)::(test_\w+)`", PAGE))
    assert len(named) > 150
    for file, test in sorted(named):
        paths = [ROOT / "tests" / "mqtt_front" / f"{file}.py", ROOT / "tests" / f"{file}.py"]
        found = [path for path in paths if path.exists()]
        assert found, f"there is no {file}.py"
        assert re.search(rf"^(async )?def {test}\(", found[0].read_text("utf-8"), re.MULTILINE), (
            f"{file}::{test}"
        )
