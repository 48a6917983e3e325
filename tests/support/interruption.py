"""Interrupts at every place where Ctrl-C may come."""

import sys
from collections.abc import Callable
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The interrupt of a test: a real one ends the test run."""


def interrupted_at(point: int, call: Callable[[], None]) -> Interrupted | None:
    """Return what interrupts `call` at the n-th call or return of a function; None if it has fewer of them. The
    exception keeps the frames alive, as one that was not handled yet."""
    left = point

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "return", "c_return")
        if left == 0:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(look)
    try:
        call()
    except Interrupted as error:
        return error
    finally:
        sys.setprofile(None)
    return None
