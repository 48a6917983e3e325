"""Selected logs of a store as of one moment. The only module here that opens a store for planning."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.core.files import SparkFiles

import timestone
import timestone_tiering
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
    if not isinstance(options.path, str):
        return timestone.view(options.path)
    shared = _folder_of_tasks()
    if options.tail is None:
        return timestone_tiering.view_bucket(options.path, shared=shared)
    return timestone_tiering.view_with_tail(options.path, options.tail, shared=shared)


def fetched_folder() -> Path:
    """Return where the tasks of this application keep what they have fetched: in the folder of Spark for its files."""
    return Path(SparkFiles.getRootDirectory()).absolute() / "timestone-bucket"


def _folder_of_tasks() -> Path | None:
    """Return a folder that all tasks of an application share on one machine, and Spark removes with it: each segment is
    fetched once. None outside of a task, and where it cannot be written."""
    if not SparkFiles._is_running_on_worker:
        return None
    folder = fetched_folder()
    return folder if os.access(folder.parent, os.W_OK) else None


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
