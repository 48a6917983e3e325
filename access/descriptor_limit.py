"""Limit of open files of the process: each connection takes one, and the usual limit is a tenth of what a fleet
needs."""

import resource


def allow_open_files(count: int) -> int | None:
    """Raise the soft limit to `count`, as far as the hard limit allows. Return None if that is enough, or the number
    that is possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return None
    possible = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return None if possible >= count else possible
