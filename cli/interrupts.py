"""SIGINT and SIGTERM as a question a loop asks between two steps, so that no line of output is cut in half."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the first signal only sets `requested`; the second one interrupts like Ctrl-C always does.

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
