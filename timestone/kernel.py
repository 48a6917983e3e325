"""Which kernel does the per-record work: the compiled one, or its twin in Python.

The compiled one is used when it was built for this version of the sources; building it is optional and needs a C
compiler when Timestone is installed. `TIMESTONE_PURE=1` in the environment, read once at the first import, asks for the
twin. The contracts of the functions are in `pure_kernel`."""

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

from timestone import pure_kernel

PURE_WANTED = os.environ.get("TIMESTONE_PURE", "").lower() not in ("", "0", "no", "false")
"""The environment asks for Python only; fronts with kernels of their own go by it, too."""


def choose(native: str, twin: ModuleType) -> tuple[ModuleType, str]:
    """The compiled module of that name, or its twin, and why not the compiled one; "" when it is."""
    if PURE_WANTED:
        return twin, "TIMESTONE_PURE is set"
    try:
        found = importlib.import_module(native)
    except ImportError:
        return twin, "no compiled kernel was built"
    if getattr(found, "INTERFACE", None) != twin.INTERFACE:
        return twin, f"{native} was built from other sources"
    return found, ""


_chosen, REASON = choose("timestone._kernel", pure_kernel)
"""Why the slow path is in use; "" when it is not."""
NAME = "pure Python" if REASON else "native"
"""Which path is in use, for a line of a report."""

if TYPE_CHECKING:
    from timestone.pure_kernel import entry_crcs as entry_crcs
    from timestone.pure_kernel import fill_entries as fill_entries
    from timestone.pure_kernel import joined as joined
    from timestone.pure_kernel import proven_count as proven_count
    from timestone.pure_kernel import valid_count as valid_count
else:
    joined = _chosen.joined
    fill_entries = _chosen.fill_entries
    entry_crcs = _chosen.entry_crcs
    valid_count = _chosen.valid_count
    proven_count = _chosen.proven_count
