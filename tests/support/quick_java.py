"""Options for a Java that runs for seconds. As a program, writes an archive of the classes that Spark loads: reading
them from its jars is half of the processor time of a start."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""For the Java and the Spark of this environment. Another Java, or another class path, starts without it."""

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""The second compiler never pays off for a few rows: without it the tests take half the processor time. A heap of a few
megabytes needs no collector with separate threads."""


def quick_java(archive: Path = ARCHIVE) -> str:
    """Return the options, with the archive where there is one. An archive that does not fit is left out in silence."""
    if not archive.exists() or " " in str(archive):
        return _OPTIONS
    return f"{_OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:cds*=error"


QUICK_JAVA = quick_java()

PROGRAM = """
import sys
from pyspark_timestone.session import spark_session

spark = spark_session(master="local[1]")
table, checkpoint = sys.argv[1] + "/table", sys.argv[1] + "/checkpoint"
rows = spark.range(100).selectExpr("id", "cast(id as string) as name", "id % 7 as part")
rows.write.partitionBy("part").parquet(table)
read = spark.read.parquet(table)
read.groupBy("part").count().orderBy("part").collect()
read.join(rows.limit(9), "id").count()
read.selectExpr("from_json(name, 'a int')", "to_json(struct(*))").toPandas()
counts = spark.readStream.schema(read.schema).parquet(table).groupBy("name").count().writeStream.outputMode("complete")
query = counts.foreachBatch(lambda frame, number: frame.collect())
query.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()
for name in "java.home", "java.class.path":
    print(spark.sparkContext._jvm.java.lang.System.getProperty(name))
"""


def write_archive(archive: Path) -> None:
    """Write the archive: run a program that loads the classes, then have Java store them. In two steps, because in one
    Java needs an archive of its own classes, which that of the wheel has not."""
    with tempfile.TemporaryDirectory() as folder:
        names, unfinished = f"{folder}/names", archive.with_suffix(".unfinished")
        options = os.environ | {"SPARK_SUBMIT_OPTS": f"{_OPTIONS} -XX:DumpLoadedClassList={names}"}
        words = [sys.executable, "-c", PROGRAM, folder]
        done = subprocess.run(words, env=options, check=True, stdout=subprocess.PIPE, text=True)
        home, classes = done.stdout.splitlines()[-2:]
        store = (
            f"-Xshare:dump -XX:SharedClassListFile={names} -XX:SharedArchiveFile={unfinished} -Xlog:disable"
        )
        words = [f"{home}/bin/java", *_OPTIONS.split(), *store.split(), "-cp", classes]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    unfinished.rename(archive)


if __name__ == "__main__":
    write_archive(ARCHIVE)
