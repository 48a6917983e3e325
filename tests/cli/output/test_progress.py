import io
from types import SimpleNamespace

import pytest

from tests.support.waiting import wait_for
from timestone_cli.output.progress import ProgressLine, Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time goes for the line only when the test says so."""
    clock = Clock()
    monkeypatch.setattr("timestone_cli.output.progress.time", SimpleNamespace(monotonic=clock))
    return clock


def test_a_terminal_gets_one_line_at_a_time_and_is_left_clean(clock: Clock) -> None:
    terminal = Terminal()
    with ProgressLine(terminal) as progress:
        progress.show("one")
        clock.now_s += 0.09
        progress.show("too soon")
        clock.now_s += 0.02
        progress.show("two")
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K"


def test_no_text_makes_room_for_other_output_at_once() -> None:
    terminal = Terminal()
    with ProgressLine(terminal) as progress:
        progress.show("one")
        progress.show("")
        assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[K"


def test_a_pipe_gets_nothing() -> None:
    pipe = io.StringIO()
    with ProgressLine(pipe) as progress:
        progress.show("one")
    assert pipe.getvalue() == ""
    assert not progress.enabled


def test_a_pipe_gets_each_step_as_a_line() -> None:
    pipe = io.StringIO()
    with Steps(stream=pipe) as steps:
        steps.begin("starting")
        steps.begin("working")
        steps.clear()
    assert pipe.getvalue() == "starting\nworking\n"


@pytest.mark.slow
def test_a_terminal_gets_the_seconds_of_a_step_and_is_left_clean() -> None:
    terminal = Terminal()
    with Steps(stream=terminal) as steps:
        steps.begin("starting")
        wait_for(lambda: "starting … 1 s" in terminal.getvalue(), timeout_s=60)
    assert terminal.getvalue().startswith("\r\x1b[Kstarting …")
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_quiet_command_shows_no_step(stream: type[io.StringIO]) -> None:
    shown = stream()
    with Steps(quiet=True, stream=shown) as steps:
        steps.begin("starting")
    assert shown.getvalue() == ""
