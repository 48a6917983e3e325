"""The question before something is deleted; at a real terminal: tests/cli/commands/test_delete."""

import io

import pytest

from timestone_cli.errors import CommandError, UsageError
from timestone_cli.input.confirmation import ask_to_delete


class Terminal(io.StringIO):
    """Standard input at which a user types."""

    def isatty(self) -> bool:
        return True


def test_question_is_refused_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("telemetry\n"))
    with pytest.raises(UsageError, match=r"delete telemetry \(5 records\): .* add --yes"):
        ask_to_delete("telemetry", "5 records")


@pytest.mark.parametrize("typed", ["", "y\n", "telemetri\n"])
def test_nothing_is_deleted_when_another_name_is_typed(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    with pytest.raises(CommandError, match="nothing was deleted"):
        ask_to_delete("telemetry", "5 records")


def test_name_that_is_typed_is_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("telemetry\n"))
    ask_to_delete("telemetry", "5 records")
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "telemetry: 5 records\ntype telemetry to delete it: ")
