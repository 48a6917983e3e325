"""A table in a pipe is as wide as it has to be and has no blanks at the ends of its lines."""

import pytest
from rich.console import Console
from rich.table import Table

from timestone_cli.output.tables import print_tables


def fill(console: Console) -> None:
    table = Table(show_edge=False)
    table.add_column("log")
    table.add_column("note")
    table.add_row("a", "[b]" + "x" * 100)
    table.add_row("b", "")
    console.print(table)


@pytest.mark.parametrize(("columns", "width"), [(None, 111), ("60", 60)])
def test_width_is_what_there_is_or_what_the_table_needs(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    print_tables(fill)
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) == width
    assert [line for line in printed if line != line.rstrip()] == []
    assert "[b]xxx" in "\n".join(printed), "what users write is no markup"
