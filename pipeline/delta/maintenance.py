"""Maintenance without Spark: Delta's OPTIMIZE, which merges many small files into few large ones, and VACUUM, which
deletes files that were replaced. Safe while the stream runs, which only adds files."""

from collections.abc import Callable

from deltalake.exceptions import CommitFailedError, DeltaError

from ..config import PipelineConfig
from .snapshot import Snapshot, failed, make_durable
from .warehouse import Commit, State, Warehouse

_ORPHAN_HOURS = 24
"""Age at which files that were never committed are deleted: a batch that is being written has younger ones."""


def compact(
    config: PipelineConfig, warehouse: Warehouse, compacted: Callable[[Commit], None] = lambda commit: None
) -> None:
    """Merge the files of each partition of each table up to `tables.file_bytes`, one commit a table; then delete files
    replaced more than `tables.keep_replaced_s` ago. Calls `compacted` after each commit. Hold
    `warehouse.role(MAINTENANCE)`. Raises PipelineError, OSError."""
    state = warehouse.state()
    tables = warehouse.tables
    for table in tables.all():
        snapshot = state.of(table)
        if not snapshot.exists:
            continue
        try:
            # `last` and `progress` are one file, which every batch replaces.
            if table not in (tables.last, tables.progress) and snapshot.number <= state.number:
                _merge(config, state, snapshot, compacted)
            _vacuum(snapshot, config.tables.keep_replaced_h)
        except (DeltaError, OSError) as error:
            raise failed(snapshot.location, error) from error


def _merge(
    config: PipelineConfig, state: State, snapshot: Snapshot, compacted: Callable[[Commit], None]
) -> None:
    before = {one.path for one in snapshot.files()}
    try:
        done = snapshot.delta.optimize.compact(target_size=config.tables.file_bytes, max_concurrent_tasks=1)
    except CommitFailedError:
        return  # another process has replaced the files: the next time
    if not done["numFilesRemoved"]:
        return
    make_durable(snapshot.location)
    merged = Snapshot(snapshot.table, snapshot.location).files()
    added = tuple(one for one in merged if not one.number and one.path not in before)
    compacted(Commit("compaction", state.number, added, done["numFilesRemoved"]))


def _vacuum(snapshot: Snapshot, hours: int) -> None:
    for full, kept in ((False, hours), (True, max(hours, _ORPHAN_HOURS))):
        snapshot.delta.update_incremental()
        if snapshot.delta.vacuum(kept, dry_run=True, enforce_retention_duration=False, full=full):
            snapshot.delta.vacuum(kept, dry_run=False, enforce_retention_duration=False, full=full)
            make_durable(snapshot.location)
