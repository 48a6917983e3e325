import os
import signal

import pytest

from timestone_cli.interrupts import Interrupts, unprepared


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


def test_before_a_command_has_begun_the_system_ends_it() -> None:
    # In a process in which Spark has been it has one of its own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with unprepared():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_ignores_interrupts_goes_on_ignoring_them() -> None:
    """As a command that a shell has put into the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with unprepared():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
