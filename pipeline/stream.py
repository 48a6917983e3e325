"""The pipeline as a running query, from the log into the tables."""

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from pyspark_timestone.errors import SparkSourceError
from pyspark_timestone.session import spark_session
from timestone.disk import access

from .config import PipelineConfig
from .delta.warehouse import STREAM, Commit, Warehouse, open_tables
from .errors import PipelineError, QueryFailed
from .failure import SPARK_ERRORS, STOPPED, in_one_line
from .jobs.batches import Batches
from .jobs.checkpoint import clear_unplanned, has_batches
from .steps.frames import LEAST_RECORDS, Frames, Step, in_silence

_LOOK_S = 1


def session_of(config: PipelineConfig, *, scans: bool = True) -> SparkSession:
    """Return a Spark session with the settings of the configuration; `scans=False` for the pipeline alone, which
    streams from logs and scans none. Raises MissingRequirement, JavaFailed."""
    return spark_session(
        "timestone-pipeline", master=config.spark.master, conf=config.spark.conf, scans=scans
    )


def run(
    config: PipelineConfig,
    spark: SparkSession,
    *,
    once: bool = False,
    final: bool = False,
    committed: Callable[[Commit], None] = lambda commit: None,
    stop: Callable[[], bool] = lambda: False,
    step: Step = in_silence,
) -> None:
    """Process the log into the tables until the query is stopped; with `once`, until all current records are processed.
    With `final`, close all windows at the end.

    `committed` is called after each commit, `step` with what begins, `stop` every second: True ends the run, also in
    the middle of a batch, which is then run again the next time. A run with `once` that was ended so has not read
    everything, and closes no windows. Raises Busy, TablesBehind, QueryFailed."""
    warehouse = open_tables(config)
    with warehouse.role(STREAM):
        batches = Batches(config, warehouse, committed, step)
        problems: list[Exception] = []
        ended = threading.Event()

        def work(records: DataFrame, number: int) -> None:
            try:
                batches(records, number)
            except Exception as error:
                if ended.is_set():
                    raise QueryFailed(STOPPED) from None
                problems.append(error)
                raise

        try:
            Frames(spark, warehouse).create_tables()
            batches.finish(spark)
            step(f"looking for new records in {config.source.path}")
            writer = _records(config, spark, warehouse).writeStream.foreachBatch(work)
            clear_unplanned(warehouse.checkpoint)
            access.make_folders(warehouse.checkpoint)  # Spark would make it readable for every user
            writer = writer.option("checkpointLocation", str(warehouse.checkpoint))
            if once:
                query = writer.trigger(availableNow=True).start()
            else:
                query = writer.trigger(processingTime=f"{config.spark.trigger_s} seconds").start()
            try:
                while not (all_read := query.awaitTermination(_LOOK_S)) and not stop():
                    pass
            finally:
                ended.set()
                query.stop()
            if final and (all_read or not once):
                step("closing all windows")
                batches.close_windows(spark)
        except SPARK_ERRORS as error:
            # An error raised here in Python is clearer than Spark's version of it.
            raise _told(problems[0] if problems else error) from error


def _records(config: PipelineConfig, spark: SparkSession, warehouse: Warehouse) -> DataFrame:
    source = config.source
    options: dict[str, str] = {
        "startingOffsets": source.starting,
        "maxOffsetsPerTrigger": str(source.records_per_batch),
        "maxRecordsPerPartition": str(_records_per_task(source.records_per_batch, spark)),
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
    }
    if source.logs:
        options["subscribe"] = ",".join(source.logs)
    if source.tail is not None:
        options["tail"] = str(source.tail)
    if source.topics:
        options["topics"] = ",".join(source.topics)
    if warehouse.state().progress.offset.positions and not has_batches(warehouse.checkpoint):
        # The checkpoint is gone and the tables are not. Read everything; records that the tables have are left out.
        options["startingOffsets"] = "earliest"
    return spark.readStream.format("timestone").options(**options).load(source.path)


def _records_per_task(records_per_batch: int, spark: SparkSession) -> int:
    """Return how many records make a task of their own: a full batch occupies every core, and a small one few."""
    return max(LEAST_RECORDS, -(-records_per_batch // spark.sparkContext.defaultParallelism))


def _told(error: Exception) -> PipelineError:
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, SparkSourceError | OSError) and not isinstance(error, ConnectionError):
        return PipelineError(str(error))
    return in_one_line(error)
