"""The chosen logs of a store as they are at one moment. The only module here that opens a store for planning."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import timestone
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.selection import Selection
from timestone import LogView


@dataclass(frozen=True, slots=True)
class ChosenLogs:
    """What a selection found in a store."""

    views: Mapping[LogPartition, LogView]
    missing: tuple[LogPartition, ...]
    """Chosen, known from before, and not there any more."""


@contextmanager
def chosen_logs(path: Path, selection: Selection, known: Iterable[LogPartition] = ()) -> Iterator[ChosenLogs]:
    """Views of the logs that `selection` names. `known` are logs that were there before.

    Opened anew for each look: a query runs for weeks, and meanwhile logs come, go and are made again.
    """
    with timestone.view(path) as store:
        there = {LogPartition(*one) for one in store.log_names()}
        chosen = selection.choose(there | set(known))
        views = {key: store.log(*key) for key in chosen if key in there}
        yield ChosenLogs(views, tuple(key for key in chosen if key not in there))
