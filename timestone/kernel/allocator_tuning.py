"""Tuning of the C allocator, for the whole process and therefore never automatic: keep freed memory for the next batch,
in processes that read or write batch after batch; or give it back, in those that are large for moments only.

By default the C library returns large blocks to the system one by one and takes new ones for the next batch. Their
pages are fresh, and the first touch of each costs more than what is written into it (docs/performance.md). What many
threads free, it keeps: each has a heap, and the limit from which blocks are returned grows with them."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # M_… of <malloc.h>
_MMAP_BYTES = 32 * 1024 * 1024
"""Blocks below this size come from the heap: the maximum of glibc."""


def keep_freed_memory(most_bytes: int) -> bool:
    """Keep freed memory for the rest of this process; free memory at the end of the heap beyond `most_bytes` is
    returned. Return False if the C library does not support it."""
    # Both, because setting only one does not stop the library from adapting the other.
    return _set({_MMAP_THRESHOLD: _MMAP_BYTES, _TRIM_THRESHOLD: most_bytes})


def return_freed_memory(block_bytes: int, heaps: int) -> bool:
    """Return blocks of at least `block_bytes` to the system when they are freed, and let all threads that start later
    share some heaps. Return False if the C library does not support it."""
    return _set({_MMAP_THRESHOLD: block_bytes, _ARENA_MAX: heaps})


def _set(options: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(option, value) for option, value in options.items()])
