"""The rows of a comparison: what each one runs, and which raw row it is compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. `run` executes it once in an empty directory that is deleted afterwards."""

    name: str
    peer: str | None
    """The raw row that this one is compared with; None for the raw rows."""
    run: Callable[[Path], Measurement]
