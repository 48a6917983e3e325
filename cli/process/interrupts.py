"""Meaning of Ctrl-C and SIGTERM to a command: before it has begun, and while it works."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def killable() -> Iterator[None]:
    """Let Ctrl-C end the process at once and without output, as it ends a program in C: nothing has begun, or nothing
    can be lost, and a traceback would not help."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield  # the handler is not Python's own: leave it in place
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupts:
    """SIGINT and SIGTERM as a flag that a loop reads between two steps, so that no line of output is cut in half.

    While entered, the first signal only sets `requested`; the second raises KeyboardInterrupt. For the main thread
    only, like every signal handler.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.exit_code = 128 + number
