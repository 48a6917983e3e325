"""Tuning of the C allocator: keeps freed memory for the next batch. For processes that read or write batch after batch;
never automatic, because it affects the whole process.

By default the C library returns large blocks to the system one by one and takes new ones for the next batch. Their
pages are fresh, and the first touch of each costs more than what is written into it (docs/performance.md)."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_… of <malloc.h>
_MMAP_BYTES = 32 * 1024 * 1024
"""Blocks below this size come from the heap: the maximum of glibc."""


def keep_freed_memory(most_bytes: int) -> bool:
    """Keep freed memory for the rest of this process; free memory at the end of the heap beyond `most_bytes` is
    returned. Return False if the C library does not support it."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Both, because setting only one does not stop the library from adapting the other.
    told = [tell(_MMAP_THRESHOLD, _MMAP_BYTES), tell(_TRIM_THRESHOLD, most_bytes)]
    return all(told)
