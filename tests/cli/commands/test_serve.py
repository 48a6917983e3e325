import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import timestone
from tests.cli.plugin import install_front
from tests.cli.processes import COMMAND, Running
from tests.cli.processes import timestone as command
from tests.support.access import check_modes
from tests.support.mqtt_clients import RawClient
from tests.support.terminal import OnTerminal

pytestmark = pytest.mark.slow

NO_FRONTS = """
import sys
import timestone_cli.main, timestone_cli.commands.serve
timestone_cli.commands.serve.installed_fronts = dict
sys.exit(timestone_cli.main.main())
"""


@pytest.fixture
def line_front(tmp_path: Path) -> dict[str, str]:
    """The environment in which the line front is installed."""
    return {"PYTHONPATH": install_front(tmp_path / "plugins")}


def serve(tmp_path: Path, environment: dict[str, str], *words: str) -> Running:
    return Running("serve", "--mqtt", "127.0.0.1:0", *words, cwd=tmp_path, environment=environment)


def say(port: int, line: bytes) -> int:
    """Send a line to the line front; returns the offset that it answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(line + b"\n")
        return int(connection.makefile().readline())


def test_lines_fit_an_eighty_column_terminal(tmp_path: Path) -> None:
    """Those of the log had up to 220 columns."""
    with OnTerminal(
        [*COMMAND, "serve", "--mqtt", "127.0.0.1:0", "--ready-file", "r.json"], tmp_path
    ) as terminal:
        terminal.wait_for("ready\r\n")
        address = json.loads((tmp_path / "r.json").read_text())["fronts"]["mqtt"]["address"]
        assert command("pub", "-p", address.rpartition(":")[2], "-t", "a", "-m", "x").returncode == 0
        terminal.wait_for("(SUCCESS)")
        assert [
            line for line in terminal.shown.splitlines() if len(line) > 80 and str(tmp_path) not in line
        ] == []
        assert " connected: " in " ".join(terminal.shown.split())


def test_error_fits_an_eighty_column_terminal_and_is_one_line_in_a_pipe(tmp_path: Path) -> None:
    words = ["serve", "--store-tail-byte", "64 MiB"]  # misspelt
    expected = command(*words, cwd=tmp_path).stderr
    assert len(expected) > 81 and expected.count("\n") == 1
    with OnTerminal([*COMMAND, *words], tmp_path) as terminal:
        terminal.wait_for(expected.split()[-1])
        assert max(map(len, terminal.shown.splitlines())) <= 80
        assert terminal.shown.split() == expected.split()


def test_second_server_leaves_the_ready_file_of_the_first(tmp_path: Path) -> None:
    """The first one, a container, was unhealthy from then on."""
    words = ["--mqtt", "127.0.0.1:0", "--ready-file", "r.json"]
    with Running("serve", *words, cwd=tmp_path) as running:
        running.lines_until("ready")
        assert command("serve", *words, cwd=tmp_path).returncode == 1
        assert (tmp_path / "r.json").exists()
        assert running.stop()[0] == 0
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    "words", [(), ("--workers", "2", "--cluster", "etcd://127.0.0.1:1/plant")], ids=["one", "workers"]
)
def test_ready_file_that_is_no_regular_file_is_refused_and_stays(
    tmp_path: Path, words: Sequence[str]
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        done = command("serve", "--mqtt", "127.0.0.1:18830", "--ready-file", path.name, *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (64, "")
        assert f"invalid ready_file {path.name}: expected a regular file, or none" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_directory_with_other_files_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for words in (["serve", "--data", "."], ["append", ".", "log"]):
        done = command(*words, cwd=tmp_path, stdin=b"x\n")
        assert (done.returncode, done.stdout) == (64, "")
        assert "invalid store .: it has other files, such as notes.txt, and no catalog.db" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_it_says_where_data_is_what_an_ack_means_and_who_listens(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    with serve(tmp_path, line_front, "--ack", "written") as running:
        lines = running.lines_until("ready")
        text = "\n".join(lines)
        assert lines[0].startswith("timestone 0.")
        assert f"pid {running.process.pid}" in lines[0]
        assert f"data  {tmp_path / 'timestone-data'}, 0 logs" in lines
        assert "ack   written: acknowledged in the page cache; survives kill -9, not power loss" in lines
        (line,) = (line for line in lines if line.startswith("line on"))
        assert say(int(line.split(",")[0].rpartition(":")[2]), b"hello") == 0
        assert "mqtt on 127.0.0.1:" in text
        code, out, _ = running.stop()
    assert code == 0
    assert out.splitlines() == ["stopping (SIGTERM); a second signal stops at once", "stopped"]


def test_the_ready_file_has_pid_and_ports_and_goes_when_it_stops(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    ready = tmp_path / "ready.json"
    with serve(tmp_path, line_front, "--ready-file", str(ready)) as running:
        state = running.wait_for_json(ready)
        assert state["pid"] == running.process.pid
        assert state["ack"] == "synced"
        assert state["data"] == str(tmp_path / "timestone-data")
        assert say(state["fronts"]["line"]["port"], b"x") == 0
        assert running.stop(signal.SIGINT)[0] == 0
    assert not ready.exists()
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_leaves_a_clean_store(
    tmp_path: Path, line_front: dict[str, str], number: signal.Signals
) -> None:
    with serve(tmp_path, line_front, "--ready-file", "ready.json") as running:
        port = running.wait_for_json(tmp_path / "ready.json")["fronts"]["line"]["port"]
        assert [say(port, b"line %d" % n) for n in range(3)] == [0, 1, 2]
        code, _, errors = running.stop(number)
        assert code == 0
        assert "Traceback" not in errors
    assert command("inspect", "timestone-data", "--deep", cwd=tmp_path).returncode == 0
    with timestone.view(tmp_path / "timestone-data") as view:
        assert [record.payload for record in view.log("lines").reader()] == [b"line 0", b"line 1", b"line 2"]


def test_files_are_for_the_owner_alone_and_open_ones_are_reported(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    data = tmp_path / "timestone-data"
    with serve(tmp_path, line_front, "--ready-file", "ready.json") as running:
        port = running.wait_for_json(tmp_path / "ready.json")["fronts"]["mqtt"]["address"].rpartition(":")[2]
        with RawClient(("127.0.0.1", int(port))) as client:
            client.connect(clean=False)
            client.subscribe("a", "$queue/a")
            client.publish("a", b"x")
        check_modes(data)
        code, _, errors = running.stop()
        assert (code, "can read" in errors) == (0, False), errors
    check_modes(data)
    data.chmod(0o755)
    (data / "catalog.db").chmod(0o644)  # as earlier versions left it
    with serve(tmp_path, line_front) as running:
        running.lines_until("ready")
        _, _, errors = running.stop()
    assert "can read files in timestone-data; to end that: chmod -R go= timestone-data" in errors


def test_a_signal_stops_it_also_after_the_reader_of_its_output_is_gone(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    """As in `timestone serve | head`, or with a log file on a full disk: it could not be stopped in order."""
    with serve(tmp_path, line_front) as running:
        running.lines_until("ready")
        assert running.process.stdout is not None
        running.process.stdout.close()
        code, _, errors = running.stop()
        assert (code, "Traceback" in errors) == (0, False), errors


def test_a_second_signal_stops_at_once_and_loses_nothing_acknowledged(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    words = ("--line-stop-delay-ms", "600 s", "--stop-timeout-ms", "600 s", "--ready-file", "ready.json")
    with serve(tmp_path, line_front, *words) as running:
        port = running.wait_for_json(tmp_path / "ready.json")["fronts"]["line"]["port"]
        say(port, b"kept")
        running.process.send_signal(signal.SIGTERM)
        while running.line() != "stopping (SIGTERM); a second signal stops at once":
            pass
        code, _, errors = running.stop(signal.SIGTERM)
        assert code == 128 + signal.SIGTERM, "it did not wait for the front"
        assert errors.endswith("stopped at once by the second signal\n")
    with timestone.open(tmp_path / "timestone-data") as store:
        assert store.log("lines", create=False).record(0).payload == b"kept"


def test_after_kill_9_the_next_start_says_what_it_recovered(
    tmp_path: Path, line_front: dict[str, str]
) -> None:
    # The server's own logs are recovered as well, and count neither as logs nor among the recovered ones.
    with serve(tmp_path, line_front, "--ready-file", "ready.json") as running:
        assert say(running.wait_for_json(tmp_path / "ready.json")["fronts"]["line"]["port"], b"kept") == 0
        running.process.kill()
        running.process.wait()
    assert (tmp_path / "ready.json").exists()
    with serve(tmp_path, line_front, "--ready-file", "ready.json", "--metrics-interval-ms", "0") as running:
        (line,) = (line for line in running.lines_until("ready") if line.startswith("data  "))
        state = running.wait_for_json(tmp_path / "ready.json")
        assert state["pid"] == running.process.pid, "the file of the killed server is gone"
        assert say(state["fronts"]["line"]["port"], b"next") == 1
        assert line == f"data  {tmp_path / 'timestone-data'}, 2 logs, 1 of them recovered"
        _, _, errors = running.stop()
        assert "recovered lines-0: segment 0 was not closed: kept 1 records" in errors


def test_lines_of_the_log_have_local_time_with_its_offset(tmp_path: Path) -> None:
    environment = {"TZ": "Asia/Kolkata", "TIMESTONE_DTAA": "x"}
    done = command(
        "serve", "--mqtt", "127.0.0.1:0", "--data", "/dev/null/x", cwd=tmp_path, environment=environment
    )
    first = done.stderr.splitlines()[0]
    time, level, _ = first.split(maxsplit=2)
    assert (level, datetime.fromisoformat(time).utcoffset()) == ("WARNING", timedelta(hours=5, minutes=30))


def test_file_environment_and_options_are_read(tmp_path: Path, line_front: dict[str, str]) -> None:
    (tmp_path / "serve.toml").write_text('data = "from-file"\nack = "memory"\n[line]\nlog = "from-file"\n')
    environment = {**line_front, "TIMESTONE_ACK": "written", "TIMESTONE_DTAA": "x"}
    words = ["--config", "serve.toml", "--line-log", "from-option", "--ready-file", "ready.json"]
    with serve(tmp_path, environment, *words) as running:
        state = running.wait_for_json(tmp_path / "ready.json")
        assert (state["ack"], state["data"]) == ("written", str(tmp_path / "from-file"))
        say(state["fronts"]["line"]["port"], b"x")
        _, _, errors = running.stop()
        assert "unknown setting TIMESTONE_DTAA in the environment; did you mean TIMESTONE_DATA?" in errors
    with timestone.view(tmp_path / "from-file") as view:
        assert view.log_names() == [("from-option", 0), ("mqtt", 0)]


@pytest.mark.parametrize(
    ("words", "toml", "code", "complaint"),
    [
        (["--ack", "never"], "", 64, "--ack: expected one of memory, written, synced, got 'never'"),
        (["--store-tail-bytes", "-1"], "", 64, "--store-tail-bytes: expected a number from 0, got '-1'"),
        (
            [],
            "[store]\ntail_byte = 1\n",
            64,
            "unknown key 'store.tail_byte'; did you mean 'store.tail_bytes'?",
        ),
        (["--config", "nowhere.toml"], "", 64, "nowhere.toml: No such file or directory"),
        (["--line", "0.0.0.0:0"], "", 64, "line: listening on 0.0.0.0 is refused (from --line)"),
        (["--mqtt", "0.0.0.0:0"], "", 64, "mqtt: listening on 0.0.0.0"),
        (["--mqtt", "nowhere"], "", 64, "mqtt: invalid listen: expected HOST:PORT"),
        (["--line", "203.0.113.1:1"], "", 1, "line: "),
        (["--data", "a-file"], "", 64, "invalid data directory a-file: it is not a directory"),
        (["--log-segment-bytes", "5 GiB"], "", 64, "--log-segment-bytes: expected a number from 1 to"),
        (
            ["--ready-file", "no/such/folder"],
            "",
            64,
            "invalid ready_file no/such/folder: no/such is not a directory",
        ),
        (["--mqtt-password-file", "nowhere"], "", 64, "mqtt: nowhere: No such file or directory"),
        (["--mqtt-password-file", "wrong"], "", 64, "mqtt: wrong:1: "),
        (["--mqtt-acl-file", "wrong"], "", 64, "mqtt: wrong:1: "),
        (["--mqtt-jwt-keys", "nowhere"], "", 64, "mqtt: nowhere: No such file or directory"),
        (["--mqtt-authenticators", "missing"], "", 64, "mqtt: unknown authenticator 'missing'"),
        (
            [],
            '[[mqtt.listeners]]\naddress = "127.0.0.1:0"\ncertificate = "nowhere.pem"\n',
            64,
            "mqtt: nowhere.pem: No such file or directory",
        ),
        (
            ["--mqtt-packet-bytes", "64 MiB"],
            "",
            64,
            "mqtt: invalid record_bytes of log mqtt: expected at least 67174399",
        ),
        (["--metrics", "0.0.0.0:0"], "", 64, "metrics = 0.0.0.0:0 can be read from other machines"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_server(
    tmp_path: Path, line_front: dict[str, str], words: list[str], toml: str, code: int, complaint: str
) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "serve.toml").write_text(toml)
    before = set(tmp_path.iterdir())
    done = command(
        "serve",
        "--mqtt",
        "127.0.0.1:0",
        "--config",
        "serve.toml",
        *words,
        cwd=tmp_path,
        environment=line_front,
    )
    assert done.returncode == code
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("timestone serve: "))
    assert complaint in error
    assert "Traceback" not in done.stderr
    if code == 64:
        assert set(tmp_path.iterdir()) == before, "nothing was created"
        assert done.stdout == ""


def test_packets_have_to_fit_into_a_log_that_exists(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "timestone-data") as store:
        store.log("mqtt", config=timestone.LogConfig(record_bytes=1000))
    done = command("serve", "--mqtt", "127.0.0.1:0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, "")
    assert "invalid record_bytes of log mqtt: expected at least 1114111 (packet_bytes 1048576" in done.stderr


def test_an_address_in_use_is_one_line_that_names_it(tmp_path: Path, line_front: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for front in ("line", "mqtt"):
            done = command(
                "serve",
                "--mqtt",
                "127.0.0.1:0",
                f"--{front}",
                f"127.0.0.1:{port}",
                cwd=tmp_path,
                environment=line_front,
            )
            assert done.returncode == 1
            assert f"timestone serve: {front}: " in done.stderr
            assert str(port) in done.stderr
            assert "address already in use" in done.stderr.lower()
            assert "Traceback" not in done.stderr


def test_a_second_server_on_the_same_data_names_the_first(tmp_path: Path, line_front: dict[str, str]) -> None:
    with serve(tmp_path, line_front) as running:
        running.lines_until("ready")
        done = command("serve", "--mqtt", "127.0.0.1:0", cwd=tmp_path, environment=line_front)
        assert done.returncode == 1
        assert f"is owned by process {running.process.pid}" in done.stderr


def test_service_manager_and_prometheus_hear_of_it(tmp_path: Path, line_front: dict[str, str]) -> None:
    ready = tmp_path / "ready.json"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {**line_front, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with serve(tmp_path, environment, "--ready-file", str(ready), "--metrics", "127.0.0.1:0") as running:
            said = manager.recv(4096).decode().splitlines()
            assert said[0] == "READY=1"
            assert "mqtt on 127.0.0.1:" in said[1]
            state = running.wait_for_json(ready)
            page = f"metrics on http://{state['metrics']}/metrics, health on /health/live, /health/ready"
            assert page in running.lines_until("ready")
            with urllib.request.urlopen(f"http://{state['metrics']}/metrics", timeout=60) as answer:
                lines = answer.read().decode().splitlines()
            assert "timestone_mqtt_connections 0" in lines
            assert f"timestone_line_port {state['fronts']['line']['port']}" in lines
            assert running.stop()[0] == 0


def test_without_any_front_it_keeps_the_store_open_and_says_so(tmp_path: Path) -> None:
    with Running("serve", cwd=tmp_path, command=[sys.executable, "-c", NO_FRONTS]) as running:
        lines = running.lines_until("ready")
        assert lines[-1].startswith(
            "no front is installed (entry points timestone.fronts): the store is open"
        )
        assert running.stop()[0] == 0
    done = command("inspect", "timestone-data", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["logs"] == []


def test_first_line_says_which_kernels_run_and_why(tmp_path: Path) -> None:
    with serve(tmp_path, {"TIMESTONE_PURE": "1"}) as running:
        lines = running.lines_until("ready")
        assert lines[0].endswith(", engine and MQTT kernel pure Python: TIMESTONE_PURE is set")
        assert "TIMESTONE_PURE" not in running.stop()[2]


def test_it_starts_without_what_only_some_servers_need(tmp_path: Path) -> None:
    """It is ready in 500 ms (`timestone bench startup` measures it), because libraries wait until they are used."""
    # Not through a pipe, which it could fill before it is ready.
    into_file = ["sh", "-c", 'exec "$0" "$@" 2>imports', *COMMAND]
    words = ("serve", "--mqtt", "127.0.0.1:0")
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}
    with Running(*words, cwd=tmp_path, command=into_file, environment=environment) as running:
        running.lines_until("ready")
        assert running.stop()[0] == 0
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "imports").read_text().splitlines()}
    assert {"mqtt_front.broker", "timestone.store"} <= imported
    assert not imported & {
        "pyarrow",
        "pyspark",
        "argon2",
        "jwt",
        "cryptography",
        "websockets",
        "timestone_bench",
    }


@pytest.mark.parametrize("form", ["--help", "--help-all"])
def test_help_lists_the_settings_of_engine_and_fronts(form: str, line_front: dict[str, str]) -> None:
    out = command("serve", form, environment={**line_front, "COLUMNS": "80"}).stdout
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert ("Appends are refused below this much free" in out) is (form == "--help-all")
    assert "Address of plain TCP" in out
    for option in (
        "--data",
        "--ack",
        "--store-tail-bytes",
        "--log-segment-bytes",
        "--line",
        "--mqtt",
        "--config",
    ):
        assert f"{option} " in out or f"{option}," in out or f"{option}\n" in out


def test_a_hang_up_takes_changed_files_over_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic a\n")
    words = ("serve", "--mqtt", "127.0.0.1:0", "--mqtt-acl-file", "acl", "--ready-file", "ready.json")
    with Running(*words, cwd=tmp_path) as running:
        running.wait_for_json(tmp_path / "ready.json")
        assert running.process.stderr is not None
        for text, said in (("topic b\n", "mqtt: reloaded"), ("nonsense\n", "nothing was reloaded: acl:1: ")):
            acl.write_text(text)
            running.process.send_signal(signal.SIGHUP)
            while said not in running.process.stderr.readline().decode():
                assert running.process.poll() is None
        assert running.stop()[0] == 0


def test_closing_the_terminal_stops_it(tmp_path: Path) -> None:
    words = ("serve", "--mqtt", "127.0.0.1:0")
    with OnTerminal([*COMMAND, *words], tmp_path) as terminal:
        terminal.wait_for("ready")
        os.kill(terminal.process.pid, signal.SIGHUP)
        terminal.wait_for("mqtt: reloaded")
        terminal.close()
        assert terminal.process.wait(60) == 0
    assert command("inspect", "timestone-data", cwd=tmp_path).returncode == 0
