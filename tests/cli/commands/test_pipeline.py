"""`timestone pipeline` as a user types it, from an empty folder."""

import json
import os
import signal
from pathlib import Path

import pytest

import timestone as engine
from pyspark_timestone.jvm.columnar import CLASS
from pyspark_timestone.jvm.java import find_java
from tests.cli.processes import Running, timestone
from tests.support import table_files
from tests.support.plant import LOG, message
from tests.support.waiting import wait_for
from timestone_pipeline import PipelineConfig, TablesConfig, open_tables

CONFIG = """
[source]
path = "data"
[spark]
master = "local[2]"
"""
"""Executors in processes of their own, as on a cluster, are the business of tests/pipeline/test_cluster.py."""


def fill(folder: Path, *payloads: bytes) -> None:
    with engine.open(folder / "data") as store:
        store.log(LOG).append_many(list(payloads), topic="site/1")


def empty_tables(folder: Path) -> None:
    config = PipelineConfig(tables=TablesConfig(path=str(folder / "tables")))
    table_files.create(open_tables(config), {})


class HeldJava:
    """A JAVA_HOME whose Java waits at one of its two starts, the launcher's and the driver's, until it is let go."""

    def __init__(self, home: Path, start: str) -> None:
        self.home = home
        self._held, self._gate = home / "held", home / "gate"
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        os.mkfifo(self._gate)
        real = find_java().command
        java.write_text(f"""#!/bin/sh
case "$*" in
*-version) "{real}" "$@" 2>&1 | sed 's|java.home = .*|java.home = {home}|' >&2; exit;;
*launcher.Main*) start=launcher;;
*) start=driver;;
esac
if [ $start = {start} ]; then : >"{self._held}"; read go <"{self._gate}"; fi
exec "{real}" "$@"
""")
        java.chmod(0o755)

    def wait(self) -> None:
        wait_for(self._held.exists, timeout_s=300)

    def let_go(self) -> None:
        self._gate.write_text("go\n")


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("start", ["launcher", "driver"])
def test_ctrl_c_while_spark_starts_ends_both_at_once_and_in_silence(tmp_path: Path, start: str) -> None:
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    fill(tmp_path, message("d", 1))
    java = HeldJava(tmp_path / "java", start)
    environment = {"JAVA_HOME": str(java.home), "TMPDIR": str(tmp_path)}
    with Running("pipeline", "run", cwd=tmp_path, environment=environment) as running:
        java.wait()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(300) == -signal.SIGINT
        java.let_go()
        # The pipes end with the last who holds them, which is Java.
        said = b"starting Spark, which takes some seconds\n"
        assert running.process.communicate(timeout=300) == (b"", said)


def ctrl_c_while_all_is_parsed_again(folder: Path) -> None:
    java = HeldJava(folder / "java", "launcher")
    environment = {"JAVA_HOME": str(java.home)}
    with Running("pipeline", "reprocess", "--all", cwd=folder, environment=environment) as running:
        java.wait()
        before = set((folder / "tables" / "clean").rglob("*.parquet"))
        java.let_go()
        # The first files of several tables: it commits none before it has written the last.
        wait_for(lambda: set((folder / "tables" / "clean").rglob("*.parquet")) - before, timeout_s=300)
        code, out, errors = running.stop(signal.SIGINT, timeout_s=300)
    assert (code, out) == (-signal.SIGINT, "")
    assert "Traceback" not in errors, "Java may tell of the job that ended with it"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_from_a_log_to_tables_and_back_to_good_order(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    fill(tmp_path, *[message("d", number, at_s=number) for number in range(1500)], b"broken")
    told = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load=info:file={tmp_path}/classes-%p.log"}
    done = timestone("pipeline", "run", "--once", "--final", cwd=tmp_path, environment=told, timeout_s=800)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("batch 1: bronze 1,501, clean 1,500, dead_letters 1")
    steps = [line for line in done.stderr.splitlines() if not line.startswith("Picked up JAVA_TOOL_OPTIONS")]
    assert steps[:2] == ["starting Spark, which takes some seconds", "looking for new records in data"]
    assert "batch 1 of 1,501 records: bronze, clean, dead_letters" in steps
    nothing = "nothing to do: the tables have every record of data\n"
    done = timestone("pipeline", "run", "--once", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, nothing, ""), (
        "without the step that starts Spark"
    )
    done = timestone("pipeline", "run", "--once", "--final", "--quiet", cwd=tmp_path, timeout_s=800)
    assert (done.returncode, done.stdout, done.stderr) == (0, nothing, "")
    loaded = "".join(path.read_text("utf-8", "replace") for path in tmp_path.glob("classes-*.log"))
    assert "org.apache.spark.SparkContext " in loaded
    assert CLASS not in loaded, "what only scans have something of was compiled for a stream"

    ctrl_c_while_all_is_parsed_again(tmp_path)
    fill(tmp_path, message("d", 9000, at_s=3))
    found = json.loads(timestone("pipeline", "status", "--json", cwd=tmp_path).stdout)
    assert (found["exact"], found["late"], found["logs"][0]["lag"]) == (True, 0, 1)
    assert found["problems"] == {"not the JSON that was expected": 1}

    done = timestone("pipeline", "compact", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "clean" in timestone("pipeline", "status", cwd=tmp_path).stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_to_the_end_that_is_stopped_before_says_so_and_closes_no_windows(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(CONFIG.replace("[spark]", "records_per_batch = 1\n[spark]"))
    # No machine has run so many batches by the time that the first one is reported.
    fill(tmp_path, *[message("d", number, at_s=number) for number in range(5000)])
    with Running("pipeline", "run", "--once", "--final", cwd=tmp_path) as running:
        assert running.line().startswith("batch 1:")
        code, _, errors = running.stop(timeout_s=300)
    assert code == 128 + signal.SIGTERM, errors
    found = json.loads(timestone("pipeline", "status", "--json", cwd=tmp_path).stdout)
    assert found["logs"][0]["lag"] > 0
    assert all(one["rows"] == 0 for one in found["tables"] if one["table"] == "windows")


def test_help_has_examples_for_every_verb() -> None:
    for verb in ("run", "backfill", "status", "compact", "reprocess"):
        done = timestone("pipeline", verb, "--help")
        assert done.returncode == 0
        assert f"timestone pipeline {verb}" in done.stdout.partition("Examples:")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["backfill", "--from", "2026-01-01T00:00:00Z"], 64, "--from and --to are needed together"),
        (
            ["backfill", "--from", "yesterday"],
            64,
            "expected an RFC 3339 time such as 2026-07-01T08:00:00Z, got 'yesterday'",
        ),
        (
            ["backfill", "--from", "2026-01-01T00:00:00Z", "--to", "2025-01-01T00:00:00Z"],
            64,
            "--from is not before",
        ),
        (["run", "--final"], 64, "needs --once"),
        (["run", "--config", "nowhere.toml"], 64, "nowhere.toml: No such file"),
        (["status", "--jsom"], 64, "did you mean '--json'?"),
        (["stop"], 64, "no such command 'stop'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], code: int, complaint: str) -> None:
    done = timestone("pipeline", *words, cwd=tmp_path)
    assert done.returncode == code
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_java_is_not_started_when_there_is_nothing_to_do(tmp_path: Path) -> None:
    empty_tables(tmp_path)
    for verb in ("backfill", "compact"):
        done = timestone("pipeline", verb, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "nothing to do\n")


@pytest.mark.slow
def test_tables_of_the_first_version_are_refused_by_every_verb(tmp_path: Path) -> None:
    (tmp_path / "tables" / "_ledger").mkdir(parents=True)
    for words in (["status"], ["compact"], ["backfill"], ["query", "SELECT 1"], ["export", "copy"]):
        done = timestone("pipeline", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
        assert "tables of the first version (_ledger)" in done.stderr


@pytest.mark.slow
def test_query_prints_rows_for_people_and_for_programs(tmp_path: Path) -> None:
    empty_tables(tmp_path)
    done = timestone("pipeline", "query", "SELECT 'it is' AS text, NULL AS n, 7 AS seven", cwd=tmp_path)
    assert done.stdout.splitlines()[2].split() == ["it", "is", "7"]
    done = timestone("pipeline", "query", "--json", "SELECT count(*) AS n FROM clean", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ('{"n": 0}\n', "")
    done = timestone("pipeline", "query", "SELECT FROM nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    done = timestone("pipeline", "export", "copy", "clean", cwd=tmp_path)
    assert done.stdout == "copy/clean: 0 rows\n"
    done = timestone("pipeline", "export", "copy", cwd=tmp_path)
    assert "copy: not an empty folder" in done.stderr
    done = timestone("pipeline", "export", "other", "cleen", cwd=tmp_path)
    assert "invalid table: expected one of bronze, clean," in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["backfill", "compact", "reprocess", "status"])
def test_where_there_are_no_tables_that_is_said_and_none_are_made(tmp_path: Path, verb: str) -> None:
    done = timestone("pipeline", verb, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    said = "tables: no tables; `timestone pipeline run` makes them"
    assert f"{said} (tables.path, the default; there is no pipeline.toml here)" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pipeline.toml").write_text('[tables]\npath = "elsewhere"\n')
    assert "elsewhere: no tables" in (again := timestone("pipeline", verb, cwd=tmp_path)).stderr
    assert "(tables.path, from pipeline.toml)" in again.stderr


@pytest.mark.slow
def test_a_store_that_is_not_there_is_known_without_java_and_no_tables_are_made(tmp_path: Path) -> None:
    done = timestone("pipeline", "run", "--once", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "timestone pipeline run: timestone-data is not a Timestone store: it does not exist\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_tables_that_nothing_was_written_to_have_a_status(tmp_path: Path) -> None:
    empty_tables(tmp_path)
    done = timestone("pipeline", "status", cwd=tmp_path)
    assert done.returncode == 0
    assert "0 batches, never written" in done.stdout
