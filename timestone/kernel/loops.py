"""Choice of the kernel for per-record work: the compiled one, or its Python version.

The compiled one is used when it was built for this version of the sources; building it is optional and needs a C
compiler when Timestone is installed. `TIMESTONE_PURE=1` in the environment, read once at the first import, asks for the
twin. In development mode (`python -X dev`), the first import reports the choice on standard error. The contracts of
the functions are in `pure`."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = [
    "AssignedTopics",
    "AwaitedBytes",
    "Budget",
    "Columns",
    "DurationCounts",
    "Flush",
    "Lock",
    "NumberedNames",
    "OpenRecords",
    "ParkedWaiters",
    "PausedWrites",
    "PreparedCommit",
    "PreparedEnd",
    "PreparedLog",
    "PreparedSegment",
    "PreparedTail",
    "Published",
    "QueuedBytes",
    "ReaderCursor",
    "SegmentRecords",
    "ShownSegment",
    "ShownSegments",
    "StoredPieces",
    "StoredRun",
    "crc32c",
    "drop_spare",
    "encoded_names",
    "entry_crcs",
    "fill_entries",
    "fitting",
    "gathered",
    "now_us",
    "placed_entries",
    "proven_count",
    "pwritev",
    "shipped_flags",
    "valid_count",
]

INTERFACE = 22
"""Incremented with every change of a signature or result, so that a stale build is not used with newer sources."""

PURE_WANTED = os.environ.get("TIMESTONE_PURE", "").lower() not in ("", "0", "no", "false")
"""Whether the environment asks for pure Python; fronts with their own kernels follow it too."""


def choose(native: str, interface: int) -> tuple[ModuleType | None, str]:
    """Return the compiled module and ""; or None and the reason why the Python twin is used."""
    module, reason = _choice(native, interface)
    if sys.flags.dev_mode and sys.stderr is not None:
        package = native.rpartition(".")[0]
        folder = Path(sys.modules[package].__file__ or "").parent
        sys.stderr.write(f"{package} in {folder}: {named(reason)}\n")
    return module, reason


def named(reason: str) -> str:
    """Return which kernel runs, and why if it is the slow one. reason: see `choose`."""
    return f"pure Python: {reason}" if reason else "compiled"


def _choice(native: str, interface: int) -> tuple[ModuleType | None, str]:
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
"""Why the Python twin is in use; "" if it is not."""
NAME = "pure Python" if _native is None else "native"
"""Name of the kernel in use, for reports."""

if TYPE_CHECKING or _native is None:
    # Not at the top: no program with the compiled kernel spends time on importing these and the library of the crc.
    from timestone.kernel.crc import crc32c
    from timestone.kernel.flush import Flush
    from timestone.kernel.open_records import OpenRecords, SegmentRecords
    from timestone.kernel.prepared import (
        AssignedTopics,
        AwaitedBytes,
        Budget,
        Columns,
        PausedWrites,
        PreparedCommit,
        PreparedEnd,
        PreparedLog,
        PreparedSegment,
        PreparedTail,
        QueuedBytes,
        StoredPieces,
        StoredRun,
    )
    from timestone.kernel.published import ParkedWaiters, Published, ReaderCursor, ShownSegment, ShownSegments
    from timestone.kernel.pure import (
        DurationCounts,
        Lock,
        NumberedNames,
        drop_spare,
        encoded_names,
        entry_crcs,
        fill_entries,
        fitting,
        gathered,
        now_us,
        placed_entries,
        proven_count,
        pwritev,
        shipped_flags,
        valid_count,
    )
else:
    globals().update({name: getattr(_native, name) for name in __all__})
