"""What is not installed is named in one line, before Spark can stumble over it."""

import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from pyspark_timestone import DefaultSource
from pyspark_timestone.errors import MissingRequirement
from pyspark_timestone.jvm.requirements import (
    require,
    require_in,
    require_spark_version,
    warn_of_untested_spark,
)


def test_what_is_not_installed_is_named_in_one_line() -> None:
    with pytest.raises(MissingRequirement) as caught:
        require("json", "no_such_module")
    assert str(caught.value) == (
        f"{sys.executable} has no module 'no_such_module', which Spark needs: pip install '.[spark]' in a clone"
    )


def test_the_python_of_the_workers_is_asked_itself(tmp_path: Path) -> None:
    require_in(sys.executable, "json", "pyarrow")
    with pytest.raises(MissingRequirement) as caught:
        require_in(sys.executable, "json", "no_such_module", "nor_this")
    assert str(caught.value) == (
        f"PYSPARK_PYTHON is {sys.executable}, which has no module 'no_such_module': "
        "pip install '.[spark]' in a clone, into that Python, or unset it"
    )
    for command in (tmp_path / "none", Path("/bin/false"), tmp_path):
        with pytest.raises(MissingRequirement, match=f"PYSPARK_PYTHON is {command}, which does not start: "):
            require_in(str(command), "json")


@pytest.mark.parametrize(("said", "version"), [("2.7 pyarrow", "2.7"), ("", "unknown")])
def test_workers_of_another_version_are_refused_whatever_they_have(
    tmp_path: Path, said: str, version: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {said}\n", "ascii")
    python.chmod(0o755)
    with pytest.raises(MissingRequirement) as caught:
        require_in(str(python), "pyarrow")
    assert str(caught.value) == (
        f"PYSPARK_PYTHON is {python}, whose version is {version}, and this Python is "
        f"{sys.version_info.major}.{sys.version_info.minor}: name one of the same version, or unset it"
    )


def test_spark_is_refused_when_it_is_older_than_4(monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark_version()
    monkeypatch.setattr("pyspark.version.__version__", "3.5.9")
    with pytest.raises(MissingRequirement, match=r"^unsupported Spark 3\.5: expected 4\.0 to 4\.3$"):
        require_spark_version()


def test_spark_is_named_in_a_warning_when_it_is_newer_than_tested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_untested_spark()
    assert caplog.messages == []
    monkeypatch.setattr("pyspark.version.__version__", "5.0.0.dev1")
    require_spark_version()
    warn_of_untested_spark()
    (message,) = caplog.messages
    assert message.startswith("Spark 5.0 is newer than the versions")


class PathWithoutArrow:
    """Finds modules as Python does, but for Arrow."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return None if name == "pyarrow" else importlib.machinery.PathFinder.find_spec(name, path, target)


def test_a_python_without_arrow_is_told_when_spark_asks_for_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [PathWithoutArrow])
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    with pytest.raises(MissingRequirement, match="has no module 'pyarrow', which Spark needs"):
        DefaultSource({"path": "data"})
