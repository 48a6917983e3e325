"""A streaming query as a separate program, to be killed.

    python -m tests.support.stream_program STORE CHECKPOINT OUT HOLD

Follows STORE from "latest" and writes each batch's offsets to OUT. In batch HOLD it reports this, after the sink has
done its work and before Spark stores the commit, and waits for its end.
"""

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from pyspark_timestone.session import spark_session
from tests.support.slow_source import SlowSource
from tests.support.spark import CONF, Batches, stream


def main(store: Path, checkpoint: Path, out: Path, hold: int) -> None:
    spark = spark_session("to-be-killed", master="local[1]", conf=CONF)
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    print("java", java, os.getpid(), flush=True)
    spark.dataSource.register(SlowSource)
    frame = stream(spark, store, source="timestone-slow", startingOffsets="latest")
    batches = Batches(out)

    def work(rows: DataFrame, number: int) -> None:
        batches(rows, number)
        if number == hold:
            print("holding", number, flush=True)
            threading.Event().wait()

    query = frame.writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()


if __name__ == "__main__":
    one, two, three = (Path(word) for word in sys.argv[1:4])
    main(one, two, three, int(sys.argv[4]))
