"""Calls of another thread between any two instructions of a function: races that would otherwise happen once a
month."""

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, ModuleType
from typing import Any, TypeVar

Made = TypeVar("Made")
Result = TypeVar("Result")


def interleaved(
    module: ModuleType,
    make: Callable[[], Made],
    call: Callable[[Made], Result],
    between: Callable[[Made], object],
) -> Iterator[Result]:
    """Return the results of `call` on objects newly made by `make`, once for each instruction that it executes in a
    module: `between` is called before that instruction."""
    for step in itertools.count():
        made = make()
        result, reached = _stopped_at(module, step, partial(call, made), partial(between, made))
        if not reached:
            assert step, f"nothing of {module.__name__} was called"
            return
        yield result


def _stopped_at(
    module: ModuleType, step: int, call: Callable[[], Result], between: Callable[[], object]
) -> tuple[Result, bool]:
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                between()  # Python traces nothing of it
        return trace

    before, here = sys.gettrace(), inspect.currentframe()
    assert here is not None
    here.f_trace_opcodes = (
        True  # Python 3.12 checks only at the start of tracing whether any frame needs instructions
    )
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, left < 0
