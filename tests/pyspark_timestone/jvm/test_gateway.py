"""Starting and ending Java. What needs a whole Spark is in test_session.py."""

from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_timestone.errors import JavaFailed
from pyspark_timestone.jvm.gateway import Gateway, spark_command
from pyspark_timestone.jvm.java import Java, find_java


@pytest.mark.spark
def test_the_command_is_sparks_own_without_the_module_that_not_every_java_has() -> None:
    command = spark_command(find_java(), {"spark.driver.memory": "3g", "spark.some.words": "a 'b c'"})
    assert "-Xmx3g" in command
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in command
    assert "--add-modules=jdk.incubator.vector" not in command
    assert command[-1] == "pyspark-shell"
    assert "spark.some.words=a 'b c'" in command


@pytest.mark.spark
def test_a_package_that_java_has_given_up_is_not_asked_for() -> None:
    package = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    java = find_java()
    assert package in spark_command(replace(java, version=21), {})
    assert package not in spark_command(replace(java, version=24), {})


@pytest.mark.spark
def test_who_wants_the_module_gets_it() -> None:
    command = spark_command(
        find_java(), {"spark.driver.extraJavaOptions": "--add-modules=jdk.incubator.vector"}
    )
    assert command.count("--add-modules=jdk.incubator.vector") == 1


def test_a_launcher_that_fails_is_quoted(tmp_path: Path) -> None:
    java = _script(tmp_path, "echo 'no room' >&2; exit 3")
    with pytest.raises(JavaFailed, match=r"launcher failed in .*: no room"):
        Gateway(java, {})


def test_a_launcher_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_timestone.jvm.gateway.START_TIMEOUT_S", 0.1)
    java = _script(tmp_path, "exec sleep 600")
    with pytest.raises(JavaFailed, match=r"launcher in .* said nothing for 0.1 s"):
        Gateway(java, {})


def test_a_java_that_ends_before_spark_is_up_is_reported(tmp_path: Path) -> None:
    # As the launcher it prints a command line, which is to start itself again, with a word: then it ends.
    java = _script(tmp_path, 'case "$1" in again) exit 7;; esac; printf "\\0\\n%s\\0again\\0" "$0"')
    with pytest.raises(JavaFailed, match=r"Spark did not start: .* ended with code 7"):
        Gateway(java, {})


def _script(home: Path, text: str) -> Java:
    command = home / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{text}\n")
    command.chmod(0o755)
    return Java(home, 21)
