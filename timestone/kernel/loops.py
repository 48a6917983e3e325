"""Which kernel does the per-record work: the compiled one, or its twin in Python.

The compiled one is used when it was built for this version of the sources; building it is optional and needs a C
compiler when Timestone is installed. `TIMESTONE_PURE=1` in the environment, read once at the first import, asks for the
twin. The contracts of the functions are in `pure_kernel`."""

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

from timestone.kernel import open_records, pure

INTERFACE = 8
"""Raised with every change of a signature or result, so that a stale build beside newer sources is not used."""

PURE_WANTED = os.environ.get("TIMESTONE_PURE", "").lower() not in ("", "0", "no", "false")
"""The environment asks for Python only; fronts with kernels of their own go by it, too."""


def choose(native: str, interface: int) -> tuple[ModuleType | None, str]:
    """The compiled module of that name, and ""; or None, and why the twin has to do."""
    if PURE_WANTED:
        return None, "TIMESTONE_PURE is set"
    try:
        found = importlib.import_module(native)
    except ImportError:
        return None, "no compiled kernel was built"
    if getattr(found, "INTERFACE", None) != interface:
        return None, f"{native} was built from other sources"
    return found, ""


_native, REASON = choose("timestone.kernel._kernel", INTERFACE)
"""Why the slow path is in use; "" when it is not."""
NAME = "pure Python" if _native is None else "native"
"""Which path is in use, for a line of a report."""

if TYPE_CHECKING or _native is None:
    gathered = pure.gathered
    drop_spare = pure.drop_spare
    pwritev = pure.pwritev
    NumberedNames = pure.NumberedNames
    fill_entries = pure.fill_entries
    write_records = pure.write_records
    entry_crcs = pure.entry_crcs
    valid_count = pure.valid_count
    proven_count = pure.proven_count
    fitting = pure.fitting
    SegmentRecords = open_records.SegmentRecords
    OpenRecords = open_records.OpenRecords
else:
    gathered = _native.gathered
    drop_spare = _native.drop_spare
    pwritev = _native.pwritev
    NumberedNames = _native.NumberedNames
    fill_entries = _native.fill_entries
    write_records = _native.write_records
    entry_crcs = _native.entry_crcs
    valid_count = _native.valid_count
    proven_count = _native.proven_count
    fitting = _native.fitting
    SegmentRecords = _native.SegmentRecords
    OpenRecords = _native.OpenRecords
