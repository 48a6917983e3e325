import io

from timestone_cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_and_is_left_clean() -> None:
    terminal = Terminal()
    with ProgressLine(terminal) as progress:
        progress.show("one")
        progress.show("too soon")
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[K"


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
