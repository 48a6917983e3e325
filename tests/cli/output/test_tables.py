"""Tables fit the terminal, have no blanks at the ends of their lines, and show names as they are."""

import pytest
from rich.console import Console

from timestone_cli.output.tables import fits, print_split, print_tables, simple_table


def fill(console: Console) -> None:
    table = simple_table()
    table.add_column("log", overflow="fold")
    table.add_column("note")
    table.add_row("[b]" + "x" * 100, "1")
    console.print(table)


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("60", 60)])
def test_table_is_as_wide_as_the_terminal(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", None)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    print_tables(fill)
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) == width
    assert [line for line in printed if line != line.rstrip()] == []
    assert "[b]xxx" in "\n".join(printed), "what users write is not markup"
    assert "".join(printed).count("x") == 100, "nothing is cut off"


def print_figures(console: Console) -> None:
    table = simple_table()
    table.add_column("server", no_wrap=True)
    for heading in ("messages a second", "ratio", "microseconds of processor", "ratio", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("first", "1", "2", "3", "4", "5")
    assert fits(console, table) is (console.width > 80)
    print_split(console, table, attached=("ratio",))


def test_split_table_repeats_its_first_column_and_keeps_attached_columns_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    print_tables(print_figures)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("server")] == [
        ["server", "messages", "a", "second", "ratio"],
        ["server", "microseconds", "of", "processor", "ratio", "memory"],
    ]
    assert [line.split() for line in lines if line.startswith("first")] == [
        ["first", "1", "2"],
        ["first", "3", "4", "5"],
    ]


def test_split_table_stays_whole_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_tables(print_figures)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("first"))
    assert row.split() == ["first", "1", "2", "3", "4", "5"]
