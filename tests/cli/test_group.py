"""What our commands add to those of click."""

import sys
from pathlib import Path

import click
import pytest

from timestone_cli.group import Command, Entry, Group, Invocation, LazyGroup, Option, help_all_option


def call(command: click.Command, *words: str) -> object:
    with command.make_context("prog", list(words), obj=Invocation()) as context:
        return command.invoke(context)


def help_of(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name="prog", terminal_width=80))


@click.command(cls=Command, epilog="Examples:\n  prog   keeps\n         its layout\n", exit_failed=7)
@click.argument("name", metavar="NAME", help="Who.")
@click.option("--plain", is_flag=True, help="Under no heading.")
@click.option("--fast", metavar="N", cls=Option, heading="Speed", help="How fast.")
def greet(name: str, plain: bool, fast: str | None) -> int:
    """Greet."""
    return len(name)


def test_command_returns_its_exit_code() -> None:
    assert call(greet, "abc") == 3


def test_help_shows_options_by_heading_and_the_epilog_as_it_is() -> None:
    shown = help_of(greet)
    options, speed = shown.index("\nOptions:\n"), shown.index("\nSpeed:\n")
    assert options < shown.index("--plain") < speed < shown.index("--fast N") < shown.index("\nExamples:\n")
    assert "  NAME  Who." in shown
    assert shown.endswith("Examples:\n  prog   keeps\n         its layout")


def test_help_names_options_that_are_not_common_and_help_all_explains_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rare = Option(["--rare-option"], heading="More", is_common=False, help="How rare.")
    command = Command("prog", params=[rare, help_all_option()])
    shown = help_of(command)
    assert "How rare." not in shown
    assert "\nMore (see --help-all):\n  --rare-option" in shown
    with pytest.raises(click.exceptions.Exit):
        call(command, "--help-all")
    shown = capsys.readouterr().out
    assert "How rare." in shown
    assert "\nMore:\n  --rare-option" in shown


def test_invocation_knows_the_command_that_failed() -> None:
    group = Group("outer", commands={"greet": greet})
    invocation = Invocation()
    with pytest.raises(click.UsageError), group.make_context("outer", ["greet"], obj=invocation) as context:
        group.invoke(context)
    assert (invocation.program, invocation.exit_failed) == ("outer greet", 7)


@pytest.mark.parametrize(
    ("words", "debug"),
    [(["greet", "x"], False), (["--debug", "greet", "x"], True), (["greet", "x", "--debug"], True)],
)
def test_debug_may_stand_before_and_after_the_command(words: list[str], debug: bool) -> None:
    group = Group("outer", commands={"greet": greet})
    invocation = Invocation()
    with group.make_context("outer", words, obj=invocation) as context:
        group.invoke(context)
    assert invocation.debug is debug


@pytest.fixture
def lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    """A group of two commands; the module of one cannot be imported."""
    (tmp_path / "lazy_good.py").write_text(
        "import click\n@click.command()\ndef command():\n    print('done')\n    return 5\n"
    )
    (tmp_path / "lazy_bad.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lazy_good", raising=False)
    table = {"Good": {"good": Entry("lazy_good", "Does it.")}, "Bad": {"bad": Entry("lazy_bad", "Fails.")}}
    return LazyGroup("prog", table=table)


def test_lazy_group_imports_only_the_command_that_runs(lazy: LazyGroup) -> None:
    assert call(lazy, "good") == 5
    with pytest.raises(AssertionError, match="imported"):
        call(lazy, "bad")


def test_lazy_group_shows_its_table_without_an_import(lazy: LazyGroup) -> None:
    shown = help_of(lazy)
    assert "Good:\n  good  Does it.\n" in shown
    assert "Bad:\n  bad   Fails.\n" in shown
    assert shown.index("Bad:") < shown.index("Options:")
    assert "lazy_good" not in sys.modules


def test_lazy_group_completes_without_an_import(lazy: LazyGroup) -> None:
    context = click.Context(lazy, info_name="prog")
    assert [item.value for item in lazy.shell_complete(context, "")] == ["good", "bad"]
    assert [item.value for item in lazy.shell_complete(context, "g")] == ["good"]
    assert "--debug" in [item.value for item in lazy.shell_complete(context, "--")]
    assert "lazy_good" not in sys.modules


def test_lazy_group_names_the_nearest_command_for_an_unknown_one(lazy: LazyGroup) -> None:
    with pytest.raises(click.exceptions.NoSuchCommand) as error:
        call(lazy, "god")
    assert error.value.possibilities == ["good"]
