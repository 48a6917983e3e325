"""Scan rate of sessions that were started in different ways, each beside Parquet in the same session.

A program, `python -m timestone_bench.spark_sessions [COUNT [TURNS]]`. The sessions are processes that exist at the
same time and scan in turn, so that other work on the machine affects all alike."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark_timestone.jvm.jar import make_jar

from .spark_read import fill

_CHILD = """
import os, sys, time
case, folder = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
if case == "spark_session()":
    from pyspark_timestone.session import spark_session
    spark = spark_session(master="local[1]", conf={"spark.driver.memory": "2g"})
else:
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.ui.enabled", "false")
    if case == "spark.jars":
        builder = builder.config("spark.jars", f"{folder}/timestone-spark.jar")
    spark = builder.getOrCreate()
    if case == "register":
        import pyspark_timestone
        pyspark_timestone.register(spark)
columns = "log,partition,offset,timestamp,topic,value,flags"
log = lambda: spark.read.format("timestone").option("columns", columns).load(f"{folder}/data")
scans = {
    "log": lambda: log().write.format("noop").mode("overwrite").save(),
    "Parquet": lambda: spark.read.parquet(parquet).write.format("noop").mode("overwrite").save(),
    "count": lambda: log().count(),
}
parquet = f"{folder}/{os.getpid()}.parquet"
log().write.parquet(parquet)
print("ready", flush=True)
for line in sys.stdin:
    begun = time.perf_counter()
    scans[line.strip()]()
    print(time.perf_counter() - begun, flush=True)
"""
CASES = ("plain", "register", "spark.jars", "spark_session()")
SCANS = ("log", "Parquet", "count")
WARM_UP = 12


def main(count: int = 1_000_000, turns: int = 9) -> None:
    """Print the median seconds of each scan, and the rate of the log relative to Parquet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "data", count, 100)
        if "spark.jars" in CASES:
            make_jar(folder / "timestone-spark.jar")
        running = {case: _start(case, folder) for case in CASES}
        taken: dict[tuple[str, str], list[float]] = {(case, scan): [] for case in CASES for scan in SCANS}
        for _ in range(WARM_UP + turns):
            for case, scan in taken:
                taken[case, scan].append(_ask(running[case], scan))
        for one in running.values():
            assert one.stdin is not None
            one.stdin.close()
            one.wait()
    print(f"{'session':16} {'log':>7} {'Parquet':>7} {'count':>7} of Parquet")
    for case in CASES:
        seconds = [statistics.median(taken[case, scan][WARM_UP:]) for scan in SCANS]
        print(f"{case:16} {' '.join(f'{one:7.2f}' for one in seconds)} {seconds[1] / seconds[0]:10.2f}")


def _start(case: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _CHILD, case, str(folder)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    while (line := child.stdout.readline()).strip() != "ready":
        if not line:
            raise SystemExit(f"{case}: the session ended")
    return child


def _ask(child: "subprocess.Popen[str]", scan: str) -> float:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{scan}\n")
    child.stdin.flush()
    return float(child.stdout.readline())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
