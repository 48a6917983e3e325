import argparse

import pytest

from timestone_cli.errors import EXIT_USAGE
from timestone_cli.parser import CommandParser, given_count, given_path


def parser_of(filled: list[str]) -> CommandParser:
    parser = CommandParser(prog="prog")
    parser.add_argument("--verbose", action="store_true")
    inner = parser.add_subparsers(dest="command")
    for name in ("one", "two"):

        def fill(parser: argparse.ArgumentParser, name: str = name) -> None:
            filled.append(name)
            parser.add_argument("--count", type=int, default=1)
            parser.add_argument("--to", type=given_path)

        inner.add_parser(name).fill = fill
    return parser


def test_only_the_command_that_is_used_declares_its_arguments() -> None:
    filled: list[str] = []
    arguments = parser_of(filled).parse_args(["two", "--count", "3"])
    assert (arguments.command, arguments.count, filled) == ("two", 3, ["two"])


def test_help_of_a_command_shows_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_of([]).parse_args(["one", "--help"])
    assert "--count COUNT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--verbos"], "prog: unknown argument '--verbos'; did you mean --verbose? (see `prog --help`)"),
        (
            ["one", "--cuont", "3"],
            "prog one: unknown argument '--cuont'; did you mean --count? (see `prog one --help`)",
        ),
        (
            ["one", "--coun=3"],
            "prog one: unknown argument '--coun=3'; did you mean --count? (see `prog one --help`)",
        ),
        (["one", "extra"], "prog one: unknown argument 'extra' (see `prog one --help`)"),
        (
            ["one", "--count", "x"],
            "prog one: argument --count: invalid int value: 'x' (see `prog one --help`)",
        ),
        (["one", "--to", ""], "prog one: argument --to: the path is empty (see `prog one --help`)"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_right_option(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parser_of([]).parse_args(words)
    assert stop.value.code == EXIT_USAGE
    assert capsys.readouterr().err == complaint + "\n"


def test_count_is_a_whole_number_from_0_on() -> None:
    assert [given_count(text) for text in ("0", "12", "1_000")] == [0, 12, 1000]
    for text, reason in (
        ("-1", "-1 is below 0"),
        ("x", "'x' is not a number"),
        ("1.5", "'1.5' is not a whole"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=reason):
            given_count(text)


def test_words_of_a_scattered_argument_may_stand_on_both_sides_of_an_option() -> None:
    parser = CommandParser(prog="prog")
    parser.add_argument("--count", type=int)
    parser.add_argument("first")
    parser.add_argument("words", nargs="*")
    parser.scattered = "words"
    for words in (
        ["a", "b", "c", "--count", "3"],
        ["a", "--count", "3", "b", "c"],
        ["--count=3", "a", "b", "c"],
    ):
        found = parser.parse_args(words)
        assert (found.first, found.words, found.count) == ("a", ["b", "c"], 3)
    with pytest.raises(SystemExit):
        parser.parse_args(["a", "b", "--cuont"])
