"""The demo, small: the command of `make demo`, and its message when the numbers differ."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from examples import demo
from examples.demo import Mismatch, alone_in, check, console_address, look_around, main
from examples.device import DeviceError
from examples.fleet import Fleet
from examples.server import Server, ServerError
from tests.house.tree import ROOT
from timestone_cli.settings.pipeline import read_pipeline_config

MESSAGES = 3_000
DEVICES = 12


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_demo_finds_equal_counts_also_after_an_earlier_demo(tmp_path: Path) -> None:
    (tmp_path / "demo" / "data" / "mqtt-0").mkdir(parents=True)
    (tmp_path / "demo" / "tables" / "clean" / "_delta_log").mkdir(parents=True)
    (tmp_path / "demo" / "server.log").touch()
    done = subprocess.run(
        [
            *[sys.executable, "-m", "examples.demo", "--messages", str(MESSAGES)],
            *["--devices", str(DEVICES), "--directory", str(tmp_path / "demo")],
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1400,
    )
    assert done.returncode == 0, done.stdout
    counts, console = done.stdout.splitlines()[-2:]
    assert f"messages in Parquet = {MESSAGES:,}" in counts
    assert "timestone console" in console
    assert "device-0000" in done.stdout, "the first rows of the report"


@pytest.mark.parametrize("option", ["--messages", "--devices"])
def test_demo_without_messages_or_devices_is_refused(option: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option, "0"])
    assert caught.value.code == 2


def test_unequal_counts_are_named() -> None:
    with pytest.raises(Mismatch, match=r"stored \(99\) is not acknowledged \(1,000\)"):
        check(Console(), "stored", 99, "acknowledged", 1000)


def test_fleet_names_the_device_that_failed() -> None:
    fleet = Fleet("127.0.0.1", 1, device_count=1, message_count=1, process_count=1)
    with fleet, pytest.raises(DeviceError, match="refused"):
        fleet.wait(120.0)


@pytest.mark.slow
def test_server_that_cannot_start_is_reported_with_its_last_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("not a directory")
    with (
        pytest.raises(ServerError, match=r"the server did not start: .*data"),
        Server(data, tmp_path / "log"),
    ):
        pass


def test_demo_that_fails_exits_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ServerError("no")

    monkeypatch.setattr("examples.demo.run", refuse)
    assert main(["--directory", str(tmp_path)]) == 1


def test_second_demo_in_the_same_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with alone_in(tmp_path / "demo"):
        assert main(["--directory", str(tmp_path / "demo")]) == 1
    assert "another demo runs in" in capsys.readouterr().out


def test_foreign_directory_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for directory in (str(tmp_path), "."):
        assert main(["--directory", directory]) == 1
        assert "has files that no demo has made" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


@pytest.mark.slow
def test_server_without_compiled_kernels_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESTONE_PURE", "1")
    with Server(tmp_path / "data", tmp_path / "log") as server:
        assert server.slow_because() == "TIMESTONE_PURE is set"


def test_demo_ends_with_how_to_see_it_in_a_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a b").mkdir()
    look_around(Console(), tmp_path / "a b", keep=False)
    assert "timestone console" in capsys.readouterr().out
    config = read_pipeline_config(tmp_path / "a b" / "pipeline.toml")
    assert config.source.path == str(tmp_path / "a b" / "data") and config.source.logs == ("mqtt",)
    assert str(config.tables.path) == str(tmp_path / "a b" / "tables")


def test_console_has_a_free_port_when_another_server_has_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(demo, "DEFAULT_CONSOLE", f"127.0.0.1:{taken.getsockname()[1]}")
        assert console_address() == demo.DEFAULT_CONSOLE
        taken.listen()
        assert console_address() == "127.0.0.1:0"
