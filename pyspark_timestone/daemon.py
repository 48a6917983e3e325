"""Spark's daemon, whose workers end without a word when Java hangs up on them: `spark.python.daemon.module`.

A program: Spark starts it with `-m`, and it forks a process for each task at a time.
"""

from pyspark import daemon

from pyspark_timestone.jvm.worker_process import quietly

if __name__ == "__main__":
    daemon.worker = quietly(daemon.worker)
    daemon.manager()
