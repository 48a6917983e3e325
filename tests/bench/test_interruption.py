"""Ctrl-C and SIGTERM end a benchmark, wherever they fall."""

import logging
import os
import signal
import sys
import weakref

import pytest

from tests.support.waiting import TIMEOUT_S
from timestone_bench.interruption import interruptible


class Referred:
    """Something with weak references to it."""


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    wait_to_be_interrupted()


def wait_to_be_interrupted() -> None:
    signal.sigtimedwait([], TIMEOUT_S)
    raise AssertionError("it continued")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_interrupt_and_nothing_is_left_of_it(number: signal.Signals) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), interruptible():
        send(number)
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)] == handlers
    assert sys.unraisablehook is hook
    assert logging.getLogger("timestone").isEnabledFor(logging.ERROR)


def test_an_interrupt_that_falls_into_a_callback_of_the_interpreter_comes_again() -> None:
    """A benchmark ran to its end, and its exit code said that nothing had happened."""
    fallen = []

    def callback(reference: "weakref.ref[Referred]") -> None:
        fallen.append(reference)
        send(signal.SIGTERM)

    def be_interrupted() -> None:
        referred = Referred()
        reference = weakref.ref(referred, callback)
        del referred
        assert fallen == [reference]
        wait_to_be_interrupted()

    with pytest.raises(KeyboardInterrupt), interruptible():
        be_interrupted()
