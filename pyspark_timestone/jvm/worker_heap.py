"""Heap of a Python worker that Spark keeps for its next task. Knows no data. Does nothing in other processes."""

import functools
import gc
import sys

from pyspark_timestone.jvm.worker_process import is_worker_process

# ruff: noqa: PLC0415 - used before it is known whether numpy is there, which the engine imports.

KEPT_BYTES = 64 << 20
"""Freed memory that a worker keeps: four of the largest batches."""


def freeze_worker_heap() -> None:
    """Exclude everything imported so far from later garbage collections, in a worker of Spark.

    After each task and each plan, Spark makes its Python process collect garbage before the next. That visits 60,000
    permanent modules, classes and functions: 15 ms, and a scan has three such processes. On one core a scan of a
    million records takes a seventh less time without it (`timestone bench spark`)."""
    if is_worker_process():
        _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    """Repeat only after further imports. What is garbage at that moment stays permanently as well."""
    gc.freeze()


@functools.cache
def keep_worker_heap() -> None:
    """Keep the memory of one batch for the next, in a worker of Spark; once. Otherwise each batch is in fresh pages,
    and their first touch is a quarter of the cost of reading and making columns."""
    if is_worker_process():
        from timestone.kernel.allocator_tuning import keep_freed_memory

        keep_freed_memory(KEPT_BYTES)
