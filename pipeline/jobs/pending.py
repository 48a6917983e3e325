"""Whether a run would find something to do, answered without Spark, whose start takes longer than an idle run."""

from pyspark_timestone.offsets import LogPartition, SourceOffset
from timestone import LogView

from ..config import SourceConfig


def is_caught_up(source: SourceConfig, tables: SourceOffset) -> bool:
    """Return whether `tables`, the offsets that the tables have reached, is the durable end of each selected log.

    False also before the first batch, which decides where the tables begin, and for what a run has to report: a log
    that is missing, was made again, or is older than the tables. Raises NotAStore, OSError."""
    if not tables.positions:
        return False

    def is_selected(key: LogPartition) -> bool:
        return not source.logs or key.log in source.logs

    with source.view() as store:
        known = map(LogPartition._make, store.log_names(server=bool(source.logs)))
        logs = {key: store.log(*key) for key in known if is_selected(key)}
        missing = {*filter(is_selected, tables.positions)} - logs.keys()
        missing_names = {*source.logs} - {key.log for key in logs}
        return (
            not missing and not missing_names and all(_is_done(log, tables, key) for key, log in logs.items())
        )


def _is_done(log: LogView, tables: SourceOffset, key: LogPartition) -> bool:
    origin = tables.origins.get(key)
    if origin is not None and (origin.log_id != log.id or origin.epoch > log.epoch):
        return False
    return log.synced_offset == tables.positions.get(key, 0)
