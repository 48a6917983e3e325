"""The rows of a comparison: what is run, and which row is its raw peer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row. `run` does it once in an empty directory that is deleted afterwards."""

    name: str
    peer: str | None
    """The raw row that this one is compared with; None for the raw rows themselves."""
    run: Callable[[Path], Measurement]
