"""The page about fault tests is true: every test, target and variable that it names exists."""

import re
from pathlib import Path

from tests.house.tree import ROOT

PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_page_names_only_existing_tests() -> None:
    assert len(NAMED) > 70
    missing = []
    for path, name in NAMED:
        text = (ROOT / path).read_text("utf-8") if (ROOT / path).exists() else ""
        if not re.search(rf"^(def|class) {name}\b", text, re.MULTILINE):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_page_has_a_row_for_all_26_tests_and_all_pitfalls() -> None:
    rows = re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)
    numbers = [*range(1, 17), *range(20, 27)]
    assert [int(row) for row in rows if row.isdecimal()] == list(range(1, 27))
    assert [row for row in rows if re.fullmatch(r"P\d+", row)] == [f"P{number}" for number in numbers]


def test_every_documented_variable_is_read_by_a_test() -> None:
    named = set(re.findall(r"TIMESTONE_[A-Z_]+", PAGE)) - {"TIMESTONE_SEED"}
    folders = (ROOT / "tests" / name for name in ("crash", "pipeline", "console/api", "console/browser"))
    read = "".join(path.read_text("utf-8") for folder in folders for path in folder.glob("*.py"))
    assert [name for name in sorted(named) if f'"{name}"' not in read] == []


def test_every_file_of_fault_tests_is_on_the_page() -> None:
    on_page = {Path(path).name for path, _ in NAMED}
    files = {path.name for path in (ROOT / "tests" / "crash").glob("test_*.py")}
    named = set(re.findall(r"tests/crash/(\w+\.py)", PAGE))
    assert sorted(files - on_page - named) == []
