"""Two machines: a server in one network namespace, its clients in another one, with a login and TLS between them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cryptography import x509

import timestone
from tests.support.certificates import Authority
from tests.support.waiting import wait_for
from timestone_access.passwords.password_file import set_password

SERVER, CLIENT = "192.0.2.1", "192.0.2.2"
PORT = 8815
BATCHES, RECORDS = 60, 20
pytestmark = [pytest.mark.slow, pytest.mark.crash]

NOTEBOOK = """
import json, sys, time
import pyarrow as pa, pyarrow.flight as fl

address, ca, what, batches, records = sys.argv[1:4] + [int(each) for each in sys.argv[4:6]]

def connect():
    client = fl.connect(f"grpc+tls://{address}", tls_root_certs=open(ca, "rb").read())
    return client, fl.FlightCallOptions(headers=[client.authenticate_basic_token("notebook", "secret")])

def patiently(step):
    deadline = time.monotonic() + 90
    while True:
        try:
            return step(*connect())
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

def append():
    sent = 0
    def step(client, login):
        nonlocal sent
        asked = fl.FlightDescriptor.for_command(json.dumps({"log": "telemetry", "producer": "notebook"}))
        schema = pa.schema([("value", pa.binary())])
        writer, answers = client.do_put(asked, schema, login)
        while sent < batches:
            values = [b"%d" % (sent * records + each) for each in range(records)]
            writer.write_with_metadata(pa.record_batch([values], schema=schema), b'{"number": %d}' % sent)
            answer = answers.read()
            if answer is None:
                writer.close()
                raise OSError("no answer")
            sent += 1
            print(sent, flush=True)
        writer.done_writing()
        writer.close()
    patiently(step)

def follow():
    found = []
    def step(client, login):
        command = {"log": "telemetry", "from": len(found), "follow": True}
        for chunk in client.do_get(fl.Ticket(json.dumps(command)), login):
            found.extend(int(value) for value in chunk.data.column("value").to_pylist())
            print(len(found), flush=True)
            if len(found) >= batches * records:
                return
    patiently(step)
    print(json.dumps(found))

append() if what == "append" else follow()
"""


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """Return the names of two network namespaces with a cable between them."""
    here, there = f"ts-a-{os.getpid()}", f"ts-b-{os.getpid()}"
    one, other = f"va{os.getpid()}"[:15], f"vb{os.getpid()}"[:15]
    try:
        sh("ip", "netns", "add", here)
        sh("ip", "netns", "add", there)
        sh("ip", "link", "add", one, "netns", here, "type", "veth", "peer", "name", other, "netns", there)
    except (OSError, subprocess.CalledProcessError) as error:
        for name in (here, there):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        pytest.skip(f"no network namespaces here: {error}")
    try:
        for name, link, address in ((here, one, SERVER), (there, other, CLIENT)):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", link)
            sh("ip", "-n", name, "link", "set", link, "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")
        yield here, there
    finally:
        sh("ip", "netns", "del", here)
        sh("ip", "netns", "del", there)


@contextmanager
def serving(machine: str, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the server on a machine until the block ends, or it is killed there."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    words = ["serve", "--data", str(folder / "data"), "--mqtt", "127.0.0.1:0", "--ready-file", str(ready)]
    words += ["--config", str(folder / "timestone.toml")]
    with subprocess.Popen(
        ["ip", "netns", "exec", machine, sys.executable, "-m", "timestone_cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, 60)
            assert process.poll() is None
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the server, with an empty log, a user, rights and a certificate."""
    with timestone.open(tmp_path / "data") as store:
        store.log("telemetry")
    set_password(tmp_path / "passwords", "notebook", b"secret")
    (tmp_path / "acl").write_text("user notebook\nlog read telemetry\nlog write telemetry\n")
    issued = Authority(tmp_path).issue("server", alternatives=(x509.IPAddress(ip_address(SERVER)),))
    (tmp_path / "timestone.toml").write_text(
        f'[flight]\nlisten = "{SERVER}:{PORT}"\npassword_file = "{tmp_path}/passwords"\n'
        f'acl_file = "{tmp_path}/acl"\ncertificate = "{issued.path}"\nkey = "{issued.key_path}"\n'
    )
    return tmp_path


def notebook(machine: str, folder: Path, what: str) -> "subprocess.Popen[str]":
    words = [f"{SERVER}:{PORT}", str(folder / "authority.pem"), what, str(BATCHES), str(RECORDS)]
    return subprocess.Popen(
        ["ip", "netns", "exec", machine, sys.executable, "-c", NOTEBOOK, *words],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_is_there_twice_when_the_server_is_killed_in_between(
    machines: tuple[str, str], folder: Path
) -> None:
    here, there = machines
    wanted = list(range(BATCHES * RECORDS))
    with notebook(there, folder, "append") as writer, notebook(there, folder, "follow") as follower:
        try:
            assert writer.stdout is not None
            for _ in range(3):
                with serving(here, folder) as server:
                    for _ in range(10):
                        assert writer.stdout.readline()
                    os.kill(server.pid, signal.SIGKILL)
                    server.wait()
            with serving(here, folder):
                assert writer.wait(90) == 0
                printed, _ = follower.communicate(timeout=90)
        finally:
            writer.kill()
            follower.kill()
    assert json.loads(printed.splitlines()[-1]) == wanted
    with timestone.open(folder / "data") as store:
        assert [int(record.payload) for record in store.log("telemetry")] == wanted


JOB = """
import sys
from pyspark.sql import SparkSession

address, ca, password, folder, wanted = sys.argv[1:5] + [int(sys.argv[5])]
from pyspark_timestone.source import register
from pyspark_timestone.session import spark_session

spark = spark_session("table", master="local[2]")
frame = (
    spark.readStream.format("timestone").option("flight", address).option("subscribe", "telemetry")
    .option("startingOffsets", "earliest")
    .option("flightUser", "notebook").option("flightPasswordFile", password).option("flightCaFile", ca).load()
)
query = (
    frame.selectExpr("offset", "cast(value as string) as value").writeStream.format("parquet")
    .option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/table")
)
print("started", flush=True)
while query.isActive:
    query.processAllAvailable()
    rows = spark.read.schema("offset long, value string").parquet(f"{folder}/table").count()
    print(rows, flush=True)
    if rows >= wanted:
        break
query.stop()
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_spark_on_the_other_machine_makes_a_table_while_the_server_is_killed(
    machines: tuple[str, str], folder: Path
) -> None:
    here, there = machines
    wanted = list(range(BATCHES * RECORDS))
    (folder / "password").write_text("secret\n")
    words = [
        f"{SERVER}:{PORT}",
        str(folder / "authority.pem"),
        str(folder / "password"),
        str(folder),
        str(len(wanted)),
    ]
    job_words = ["ip", "netns", "exec", there, sys.executable, "-c", JOB, *words]
    with (
        (folder / "job.err").open("w") as errors,
        subprocess.Popen(job_words, stdout=subprocess.PIPE, stderr=errors, text=True) as job,
        notebook(there, folder, "append") as writer,
    ):
        try:
            assert writer.stdout is not None and job.stdout is not None
            with serving(here, folder) as server:
                assert job.stdout.readline() == "started\n", (folder / "job.err").read_text()[-3000:]
                for _ in range(20):
                    assert writer.stdout.readline()
                os.kill(server.pid, signal.SIGKILL)
                server.wait()
            with serving(here, folder):
                assert writer.wait(90) == 0
                assert job.wait(180) == 0, (folder / "job.err").read_text()[-3000:]
        finally:
            writer.kill()
            job.kill()
    table = pq.read_table(folder / "table").sort_by("offset").to_pydict()
    assert table["offset"] == wanted
    assert [int(value) for value in table["value"]] == wanted
