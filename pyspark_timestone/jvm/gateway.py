"""Java process of Spark as a child of this program. Knows nothing of data sources.

PySpark's own way uses two bash scripts and passes `--add-modules=jdk.incubator.vector`, a module that the Java from
a wheel lacks: it refuses to start. So this asks Spark's launcher for the command, as those scripts do, drops that
one argument and starts Java itself. It works with an empty PATH and without JAVA_HOME, and in the same way on every
Java. Only MLlib would use the module (faster linear algebra); set `spark.driver.extraJavaOptions` to that argument
to have it back."""

import atexit
import os
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from pyspark_timestone.errors import JavaFailed
from pyspark_timestone.jvm.java import Java

START_TIMEOUT_S = 120
"""A JVM on a loaded machine answers within ten seconds."""

STOP_TIMEOUT_S = 10
"""Time for Java to end by itself before it is killed."""

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE, _GONE_IN = "--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24
"""Spark 4.3 requests it on every version, and each start then prints a warning."""

_LOGGING = """\
status = error
rootLogger.level = error
# Spark's "setting default log level" would be printed for a start class that differs from the rest.
logger.start.name = org.apache.spark.api.python.PythonGatewayServer
logger.start.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
appender.stderr.layout.alwaysWriteExceptions = false
"""
"""One line for each error. The error itself is raised in Python with its stack trace."""


class Gateway:
    """Running Java and the connection to it."""

    def __init__(self, java: Java, conf: Mapping[str, str]) -> None:
        """Start Java. Raises JavaFailed if Spark does not start in it. The child cannot outlive this program: Java
        reads a pipe that this program holds and exits at its end. An orderly end waits for it."""
        # Needed only until Java has answered; removed by then, so that a killed program leaves none behind.
        with tempfile.TemporaryDirectory(prefix="timestone-spark-") as name:
            directory = Path(name)
            command = _with_logging(java, conf, directory / "log4j2.properties")
            answer = directory / "connection"
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env=_driver_environment(java, conf) | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
                # A process group of its own: Ctrl-C goes to this program, which then stops Spark in order.
                process_group=0,
            )
            atexit.register(self.close)
            self.py4j: Any = _connect(*self._await_answer(java, answer))

    def close(self) -> None:
        """End Spark, then Java, and wait. Idempotent; called at the end of the program."""
        atexit.unregister(self.close)
        self._disconnect()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _disconnect(self) -> None:
        """Disconnect before Java ends: threads of PySpark and garbage collection of Python still call it, and print
        errors without an answer."""
        py4j: Any = getattr(self, "py4j", None)
        self.py4j = None
        if py4j is None:
            return
        try:
            if SparkContext._gateway is py4j:
                if SparkContext._active_spark_context is not None:
                    SparkContext._active_spark_context.stop()
                SparkContext._gateway = SparkContext._jvm = None
            py4j.shutdown()
        except (Py4JError, OSError):
            pass  # Java has died already; `close` does the rest.

    def _await_answer(self, java: Java, answer: Path) -> tuple[int, str]:
        """Return port and secret of the gateway. Java renames the complete file into place."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answer.exists():
            try:
                code = self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                code = None
            self.close()
            fate = f"ended with code {code}" if code is not None else f"said nothing for {START_TIMEOUT_S} s"
            raise JavaFailed(f"Spark did not start: {java.command} (Java {java.version}) {fate}")
        # Two big-endian integers, port and length, then the secret.
        data = answer.read_bytes()
        port, length = struct.unpack_from(">ii", data)
        return port, data[8 : 8 + length].decode()


def folder_of_spark(jvm: Any) -> str:
    """Return a new folder, which Spark removes at its end."""
    temporary = jvm.java.lang.System.getProperty("java.io.tmpdir")
    return str(jvm.org.apache.spark.util.Utils.createTempDir(temporary, "spark").getPath())


def _with_logging(java: Java, conf: Mapping[str, str], file: Path) -> list[str]:
    file.write_text(_LOGGING)
    # Ours first: of two settings of one property Java takes the last, which should be the user's.
    options = f'"-Dlog4j2.configurationFile={file}" {conf.get("spark.driver.extraJavaOptions", "")}'
    return spark_command(java, {**conf, "spark.driver.extraJavaOptions": options.strip()})


def spark_command(java: Java, conf: Mapping[str, str]) -> list[str]:
    """Return the command that starts the driver of Spark in `java`, as the launcher of Spark builds it, without what
    `java` lacks. Raises JavaFailed."""
    home = _spark_home()
    settings = [part for key, value in sorted(conf.items()) for part in ("--conf", f"{key}={value}")]
    launcher = [str(java.command), "-Xmx128m", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"]
    try:
        answer = subprocess.run(
            [*launcher, *submit],
            capture_output=True,
            text=True,
            env=_environment(java),
            timeout=START_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise JavaFailed(f"Spark's launcher in {java.command} said nothing for {START_TIMEOUT_S} s") from None
    if answer.returncode != 0:
        raise JavaFailed(f"Spark's launcher failed in {java.command}: {answer.stderr.strip()}")
    # The launcher prints a NUL, then each argument followed by a NUL.
    command = answer.stdout.partition("\0\n")[2].rstrip("\0").split("\0")
    for word in (_VECTOR_MODULE, *([_GONE_PACKAGE] if java.version >= _GONE_IN else [])):
        if word in command:
            command.remove(word)
    return command


def _environment(java: Java) -> dict[str, str]:
    home = _spark_home()
    (launcher,) = home.glob("jars/spark-launcher_*.jar")
    return os.environ | {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": launcher.name.removeprefix("spark-launcher_").partition("-")[0],
        "SPARK_CONNECT_MODE": "0",
    }


def _driver_environment(java: Java, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the driver, without SPARK_HOME if the workers run in this Python on this machine.
    With it they import PySpark from a zip in that folder without compiled modules, and each of four kinds of worker
    takes half a second more."""
    environment = _environment(java)
    master, python = conf.get("spark.master", ""), conf.get("spark.pyspark.python")
    python = python or environment.get("PYSPARK_PYTHON")
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    one_process = master == "local" or master.startswith("local[")
    if one_process and python == sys.executable and str(Path(pyspark.__file__).parent.parent) in installed:
        environment.setdefault("SPARK_CONF_DIR", f"{environment.pop('SPARK_HOME')}/conf")
    return environment


def _spark_home() -> Path:
    # The jars of the imported PySpark, for any SPARK_HOME: both must have the same version.
    own = Path(pyspark.__file__).parent
    return own if (own / "jars").is_dir() else Path(_find_spark_home())


def _connect(port: int, secret: str) -> Any:
    """Return the gateway object of PySpark, which takes port and secret of a running Java only from the environment."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        # Not for child processes: they would connect to this Spark instead of their own.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
