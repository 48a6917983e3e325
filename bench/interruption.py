"""SIGTERM that ends a benchmark like Ctrl-C, and both for certain."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 0.01


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGTERM and SIGINT raise KeyboardInterrupt. Python drops one that falls into a callback of its own (a
    weak reference's, say) and continues: such a one is raised again. A store that is left in the middle of a write
    would report that; here nobody needs it any more."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        logging.disable(logging.ERROR)
        raise KeyboardInterrupt

    def dropped(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            hook(unraisable)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
