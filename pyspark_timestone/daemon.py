"""Daemon of Python workers, `spark.python.daemon.module`, whose workers end silently when Java closes the
connection. A program: Spark starts it with `-m`, and it forks one process for each concurrent task."""

from pyspark import daemon

from pyspark_timestone.jvm.worker_process import quietly

if __name__ == "__main__":
    daemon.worker = quietly(daemon.worker)
    daemon.manager()
