"""Selected logs of a store as of one moment. The only module here that opens a store for planning."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import timestone
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.options.selection import Selection
from timestone import LogView, StoreView


@dataclass(frozen=True, slots=True)
class ChosenLogs:
    """Logs that a selection found in a store."""

    views: Mapping[LogPartition, LogView]
    missing: tuple[LogPartition, ...]
    """Selected logs that existed before and are missing now."""


def source_view(options: ReadOptions) -> StoreView:
    """Return a view of what the options name: a store, a bucket, or both. Raises what `timestone.view` does."""
    return timestone.view(options.path, tail=options.tail)


@contextmanager
def chosen_logs(
    options: ReadOptions, selection: Selection, known: Iterable[LogPartition] = ()
) -> Iterator[ChosenLogs]:
    """Open views of the logs that `selection` names. known: logs that existed before. Opened again for each plan: a
    query runs for weeks, in which logs are created, deleted and created again."""
    with source_view(options) as store:
        there = {LogPartition(*one) for one in store.log_names(server=True)}
        chosen = selection.choose(there | set(known))
        views = {key: store.log(*key) for key in chosen if key in there}
        yield ChosenLogs(views, tuple(key for key in chosen if key not in there))
