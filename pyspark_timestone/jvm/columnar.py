"""Has Spark take the columns that the source's Python workers send, and not make rows of them first.

Spark 4.3 turns each record that a source in Python yields into a row, and that row into another one: a third of what a
scan costs. `DefaultSource.java` stands between Spark and the source and hands the columns over as they are. Spark
compiles it with the compiler that it has for its own queries, so no JDK is needed and no jar is shipped.

What it refers to in Spark is not public: where it does not compile, scans go by rows as before.
"""

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
"""The first version that the class compiles on."""
SETTING = "spark.timestone.columnar"
"""`false` in a session has the scans it plans from then on go by rows. Read in `DefaultSource.java`."""
CLASS = "timestone.DefaultSource"
"""Spark looks for a class `DefaultSource` in the package of a format's name before it asks Python for a source."""

_log = logging.getLogger(__name__)


def hand_over_columns(session: "SparkSession") -> bool:
    """Have batch scans hand over columns, in all sessions of this Java; again it does nothing.

    False, and scans go by rows, where this Spark is not one that the class was written for.
    """
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
        classes = _compiled(gateway.jvm, loader)
        if not local:
            _send(context, classes)
        if not known:
            _define(gateway, loader, classes)
    except (Py4JError, TypeError) as error:  # a class that Java does not know is called in vain
        reason = " ".join(str(error).splitlines()[:2])  # the rest is Java's stack
        _log.warning("Spark %s: scans go by rows: %s", session.version, reason)
        return False
    return True


def _knows(loader: Any) -> bool:
    """This Java has the class. Raises Py4JError."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    try:
        loader.loadClass(CLASS)
    except Py4JJavaError as error:
        if "ClassNotFoundException" not in str(error.java_exception):
            raise
        return False
    return True


def _compiled(jvm: Any, loader: Any) -> Mapping[str, bytes]:
    """The code of each class in the file, by name. Raises Py4JError."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files(__package__).joinpath("DefaultSource.java").read_text("utf-8"))
    return dict(compiler.getBytecodes())


def _define(gateway: Any, loader: Any, classes: Mapping[str, bytes]) -> None:
    """Add classes to those of Spark, in this process. Raises Py4JError.

    Java has no public way to do that; Spark starts it with `--add-opens=java.base/java.lang=ALL-UNNAMED`."""
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
    """Give classes to executors that are processes of their own: they fetch them before their next task."""
    from pyspark_timestone.jvm.gateway import folder_of_spark  # noqa: PLC0415 - imports PySpark

    jar = Path(folder_of_spark(context._jvm), "timestone-columnar.jar")
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in classes.items():
            archive.writestr(f"{name.replace('.', '/')}.class", code)
    context._jsc.addJar(str(jar))
