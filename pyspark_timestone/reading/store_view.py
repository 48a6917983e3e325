"""Selected logs of a store, or of a server, as of one moment. The only module here that opens one."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pyspark.core.files import SparkFiles

import timestone
import timestone_tiering
from pyspark_timestone.flight.remote_store import RemoteLog, RemoteStore
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from pyspark_timestone.options.read_options import ReadOptions
from pyspark_timestone.options.selection import Selection
from timestone import LogView, StoreView

SourceLog: TypeAlias = LogView | RemoteLog


@dataclass(frozen=True, slots=True)
class ChosenLogs:
    """Logs that a selection found in a store."""

    views: Mapping[LogPartition, SourceLog]
    missing: tuple[LogPartition, ...]
    """Selected logs that existed before and are missing now."""


def source_view(options: ReadOptions) -> StoreView | RemoteStore:
    """Return a view of what the options name: a store, a bucket, both, or a server. Raises what `timestone.view`
    does, and ServerUnavailable when it is first used."""
    if isinstance(options.source, FlightServer):
        return RemoteStore(options.source)
    if not isinstance(options.source, str):
        return timestone.view(options.source)
    shared = _folder_of_tasks()
    if options.tail is None:
        return timestone_tiering.view_bucket(options.source, shared=shared)
    if isinstance(options.tail, FlightServer):
        return RemoteStore(
            options.tail, functools.partial(timestone_tiering.view_bucket, options.source, shared=shared)
        )
    return timestone_tiering.view_with_tail(options.source, options.tail, shared=shared)


def writable_store(options: ReadOptions) -> Path | FlightServer:
    """Return where the progress of a group is kept: with a bucket, in the store that uploads to it."""
    if isinstance(options.source, FlightServer):
        return options.source
    return options.tail or Path(options.source)


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
