import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from timestone_cli.process.interrupts import Interrupts, killable


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks_and_the_second_interrupts(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        asked = [interrupts.requested]
        os.kill(os.getpid(), number)
        asked.append(interrupts.requested)
        assert asked == [False, True]
        assert interrupts.exit_code == code
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@contextmanager
def interrupts_handled_by(handler: signal.Handlers | Callable[..., Any]) -> Iterator[None]:
    """The handlers in this process otherwise: one in which Spark has been has a handler of Spark's."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_before_a_command_has_begun_the_system_ends_it() -> None:
    with interrupts_handled_by(signal.default_int_handler):
        with killable():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_ignores_interrupts_still_ignores_them() -> None:
    """As a command that a shell has put into the background."""
    with interrupts_handled_by(signal.SIG_IGN):
        with killable():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
