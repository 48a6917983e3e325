import io

import pytest

from timestone_cli.output.text import fitted, print_text, width, wrapped


@pytest.mark.parametrize(("columns", "expected"), [(None, 80), ("60", 60), ("200", 200)])
def test_width_is_80_columns_unless_there_is_a_terminal_or_columns_is_set(
    columns: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.__stdout__", None)
    assert width() == expected


def test_sentence_is_wrapped_with_an_indent_and_a_long_word_stays_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert wrapped("  one two three four-five six") == "  one two three\n  four-five six"
    print_text("at /a/path/that/is/longer/than/the/line is")
    assert capsys.readouterr().out.splitlines() == [
        "at",
        "  /a/path/that/is/longer/than/the/line",
        "  is",
    ]


@pytest.mark.parametrize(("terminal", "lines"), [(True, ["one two", "  three"]), (False, ["one two three"])])
def test_line_is_wrapped_on_a_terminal_only(
    terminal: bool, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "10")
    assert fitted("one two three", stream).splitlines() == lines
