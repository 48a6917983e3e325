"""End a benchmark by SIGTERM as by Ctrl-C, and let neither be lost.

Its own processes are started with `process_group=0`: Ctrl-C is for the command, which kills them. Where they got it as
well, each would print a traceback, and none can prevent that before its imports are done."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 0.01


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT inside the block.

    Python discards an exception that is raised in one of its own callbacks (of a weak reference, for instance) and
    continues: such an interrupt is raised again. A store that is interrupted during a write would report that; the
    report is suppressed because the store is not used again.
    """

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
