"""What another thread may do between any two instructions of a call: races that threads would meet once in a month."""

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
    meanwhile: Callable[[Made], object],
) -> Iterator[Result]:
    """What `call` returns of something that `make` made anew, once for each instruction that it executes in a module:
    `meanwhile` is called in front of that one."""
    for step in itertools.count():
        made = make()
        result, reached = _stopped_at(module, step, partial(call, made), partial(meanwhile, made))
        if not reached:
            assert step, f"nothing of {module.__name__} was called"
            return
        yield result


def _stopped_at(
    module: ModuleType, step: int, call: Callable[[], Result], meanwhile: Callable[[], object]
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
                meanwhile()  # Python traces nothing of it
        return trace

    before, here = sys.gettrace(), inspect.currentframe()
    assert here is not None
    here.f_trace_opcodes = (
        True  # Python 3.12 looks only when tracing begins whether any frame wants to see instructions
    )
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return result, left < 0
