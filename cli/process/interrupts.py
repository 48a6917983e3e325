"""What Ctrl-C and SIGTERM mean to a command: while it has nothing to bring in order, and while it is at work."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def killable() -> Iterator[None]:
    """While entered, Ctrl-C ends the process at once and without a word, as it ends one in C and as SIGTERM does:
    nothing has begun, or nothing is lost, and a traceback out of the middle of it tells nobody anything."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield  # somebody else has decided what a signal means
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Interrupts:
    """SIGINT and SIGTERM as a question a loop asks between two steps, so that no line of output is cut in half.

    While entered, the first signal only sets `requested`; the second one interrupts like Ctrl-C always does.

    Only in the main thread, like every signal handler.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.exit_code = 128 + number
