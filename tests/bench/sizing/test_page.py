from tests.house.tree import ROOT
from timestone_bench.sizing.page import filled

PAGE = ROOT / "docs" / "scale.md"


def test_page_has_the_tables_that_the_command_prints() -> None:
    text = PAGE.read_text("utf-8")
    assert filled(text) == text, "run: make scale"


def test_tables_that_were_changed_are_written_again() -> None:
    text = PAGE.read_text("utf-8")
    assert "| messages/s | 1.0 |" in text
    assert filled(text.replace("| messages/s | 1.0 |", "| messages/s | 2.0 |")) == text
