"""Columnar scans: makes Spark take the columns that the Python workers of the source send, without converting them to
rows, and give the source the filters and columns of a query.

Spark 4.3 converts each record of a Python source into a row, and that row into another: a third of the cost of a
scan. `DefaultSource.java` stands between Spark and the source and passes the columns on. Spark compiles it with the
compiler for its own queries, so no JDK is needed and no jar is shipped. The interfaces of Spark that it uses are not
public: where it does not compile, scans go by rows."""

import logging
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_timestone.jvm.requirements import spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNAR_SPARK = (4, 2)
"""First version on which the class compiles."""
SETTING = "spark.timestone.columnar"
"""`false` leaves the scans that the session plans from then on to Spark's own source for Python: they go by rows, and
read all columns. Read in `DefaultSource.java`."""
CLASS = "timestone.DefaultSource"
"""Spark looks for a class `DefaultSource` in the package of a format's name before it asks Python for a source."""
_VERSION = "@VERSION@"
"""Stands in the source for the version that it is compiled for: on another one, scans go by rows."""

_log = logging.getLogger(__name__)


def hand_over_columns(session: "SparkSession") -> bool:
    """Make batch scans pass columns in all sessions of this Java. Idempotent. Return False, and scans go by rows, on
    a version of Spark without support."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - importable without PySpark

    if spark_version() < COLUMNAR_SPARK:
        _log.warning(
            "Spark %s: scans go by rows; they go by columns, and faster, from Spark %d.%d on",
            session.version,
            *COLUMNAR_SPARK,
        )
        return False
    context = session.sparkContext
    gateway: Any = context._gateway
    loader, local = session._jsparkSession.getClass().getClassLoader(), context._jsc.isLocal()
    try:
        known = _knows(loader)
        if known and local:
            return True
        classes = compiled(gateway.jvm, loader)
        if not local:
            _send(context, classes)
        if not known:
            _define(gateway, loader, classes)
    except (Py4JError, TypeError) as error:  # calling a class that Java does not know has this effect
        reason = " ".join(str(error).splitlines()[:2])  # the rest is the stack trace of Java
        _log.warning("Spark %s: scans go by rows: %s", session.version, reason)
        return False
    return True


def _knows(loader: Any) -> bool:
    """Return whether this Java has the class. Raises Py4JError."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    try:
        loader.loadClass(CLASS)
    except Py4JJavaError as error:
        if "ClassNotFoundException" not in str(error.java_exception):
            raise
        return False
    return True


def compiled(jvm: Any, loader: Any) -> Mapping[str, bytes]:
    """Return the bytecode of each class in the file, by name, for this version of Spark. Raises Py4JError."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    source = files(__package__).joinpath("DefaultSource.java").read_text("utf-8")
    compiler.cook(source.replace(_VERSION, ".".join(map(str, spark_version()))))
    return dict(compiler.getBytecodes())


def write_jar(path: Path, classes: Mapping[str, bytes]) -> None:
    """Write a jar of classes. Raises OSError."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, code in classes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)


def _define(gateway: Any, loader: Any, classes: Mapping[str, bytes]) -> None:
    """Add classes to those of Spark in this process. Raises Py4JError. Java has no public way to do so; Spark starts
    it with `--add-opens=java.base/java.lang=ALL-UNNAMED`."""
    lang = gateway.jvm.java.lang
    types = gateway.new_array(lang.Class, 4)
    types[0], types[1] = lang.Class.forName("java.lang.String"), lang.Class.forName("[B")
    types[2] = types[3] = lang.Integer.TYPE
    define = lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod("defineClass", types)
    define.setAccessible(True)
    for name, code in classes.items():
        arguments = gateway.new_array(lang.Object, 4)
        arguments[0], arguments[1], arguments[2], arguments[3] = name, code, 0, len(code)
        define.invoke(loader, arguments)


def _send(context: Any, classes: Mapping[str, bytes]) -> None:
    """Send classes to executors in other processes, which fetch them before their next task."""
    from pyspark_timestone.jvm.gateway import folder_of_spark  # noqa: PLC0415 - imports PySpark

    jar = Path(folder_of_spark(context._jvm), "timestone-columnar.jar")
    write_jar(jar, classes)
    context._jsc.addJar(str(jar))
