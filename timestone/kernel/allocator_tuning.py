"""What becomes of memory that a process has freed: it is kept for what comes next. For processes that read or write
batch after batch; never by itself, because it counts for all that they do.

By itself the C library gives large blocks back to the system one by one, and takes new ones for the next batch. Their
pages are fresh, and the first touch of each costs more than what is then written into it (docs/performance.md).
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of <malloc.h>
_MMAP_BYTES = 32 * 1024 * 1024
"""Blocks below this size come from the heap. The most that glibc takes."""


def keep_freed_memory(most_bytes: int) -> bool:
    """For the rest of this process; what is free at the end of the heap beyond `most_bytes` is given back. False where
    the C library cannot be told."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Both, because one of them alone stops the library from adapting the other.
    told = [tell(_MMAP_THRESHOLD, _MMAP_BYTES), tell(_TRIM_THRESHOLD, most_bytes)]
    return all(told)
