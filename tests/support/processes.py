"""The descendants of a process."""

import os
from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """Return their pids and command lines."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended since
            parents[int(name)] = int(fields[1])
    found: dict[int, str] = {}
    wanted = {pid}
    while wanted:
        children = {one for one, parent in parents.items() if parent in wanted} - set(found)
        for one in children:
            try:
                found[one] = Path("/proc", str(one), "cmdline").read_text().replace("\0", " ")
            except OSError:
                found[one] = ""
        wanted = children
    return found
