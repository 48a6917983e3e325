"""The heap of a Python process that Spark keeps for its next piece of work. Knows no data. Other processes are not ours
to do this to."""

import functools
import gc
import sys

from pyspark_timestone.jvm.worker_process import is_worker_process

# ruff: noqa: PLC0415 - used before it is known whether numpy is there, which the engine imports.

KEPT_BYTES = 64 << 20
"""What a worker keeps of the memory that it has freed: four of the largest batches."""


def freeze_worker_heap() -> None:
    """Leave what is imported by now out of all later garbage collections, if this is a process of Spark's.

    After each task, and after each plan, Spark has its Python process collect all garbage before it takes on the next.
    That walks 60,000 modules, classes and functions that stay for good: 15 ms, and a scan has three such processes.
    On one core a scan of a million records takes a seventh less without (`timestone bench spark`).
    """
    if is_worker_process():
        _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    """Again only where modules have come since: much is imported by what is called first, and later. Each time what is
    garbage at that moment stays for good as well."""
    gc.freeze()


@functools.cache
def keep_worker_heap() -> None:
    """Make the next batch out of the memory of the one before, if this is a process of Spark's; once.

    Else each batch is in fresh pages, and their first touch is a quarter of what reading and making columns costs.
    """
    if is_worker_process():
        from timestone.kernel.allocator_tuning import keep_freed_memory

        keep_freed_memory(KEPT_BYTES)
