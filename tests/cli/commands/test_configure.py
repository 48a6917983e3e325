"""`timestone configure` as a process: settings of logs are shown beside a server, and changed when none runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.publish import multiple

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.stores import fill
from tests.support.waiting import wait_for
from timestone import LogConfig
from timestone_cli.settings.schema import settings_of
from timestone_cli.settings.values import convert

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for partition in (0, 1):
        fill(tmp_path / "data", 30, partition=partition, segment_entries=10)
    with timestone.open(tmp_path / "data") as store:
        store.log("other").append(b"x")
    return tmp_path / "data"


def settings(data: Path, log: str, partition: int = 0) -> LogConfig:
    with timestone.open(data) as store:
        return store.log(log, partition, create=False).config


def test_each_log_is_shown_with_what_differs_from_the_defaults(data: Path, tmp_path: Path) -> None:
    done = command("configure", "data", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "other-0      defaults",
        "telemetry-0  segment_entries=10",
        "telemetry-1  segment_entries=10",
    ]


def test_one_log_is_shown_with_all_settings_and_their_defaults(data: Path, tmp_path: Path) -> None:
    lines = command("configure", "data", "telemetry", cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "telemetry-0, telemetry-1"
    rows = [line.split() for line in lines[1:]]
    assert rows[0] == ["setting", "value", "default"]
    assert ["segment_entries", "10", "4_194_304"] in rows
    assert ["segment_bytes", "256MiB", "256MiB"] in rows
    assert [row[0] for row in rows[1:]] == [setting.key for setting in settings_of(LogConfig)]


def test_partitions_with_other_settings_have_a_table_of_their_own(data: Path, tmp_path: Path) -> None:
    command("configure", "data", "telemetry", "--partition", "1", "compact=yes", cwd=tmp_path)
    assert (settings(data, "telemetry").compact, settings(data, "telemetry", 1).compact) == (False, True)
    lines = command("configure", "data", "telemetry", cwd=tmp_path).stdout.splitlines()
    assert [line for line in lines if line.startswith("telemetry")] == ["telemetry-0", "telemetry-1"]


def test_what_is_shown_can_be_typed_again(data: Path, tmp_path: Path) -> None:
    words = ["retention_ms=36h", "retention_bytes=1.5GiB", "compression=zstd", "segment_age_ms=1500ms"]
    command("configure", "data", "other", *words, cwd=tmp_path)
    (line, *_) = command(
        "configure", "data", cwd=tmp_path, environment={"COLUMNS": "200"}
    ).stdout.splitlines()
    shown = dict(word.split("=") for word in line.split()[1:])
    known = {setting.key: setting for setting in settings_of(LogConfig)}
    assert {name: convert(known[name], text) for name, text in shown.items()} == {
        "retention_ms": DAY_MS + DAY_MS // 2,
        "retention_bytes": 3 << 29,
        "compression": "zstd",
        "segment_age_ms": 1500,
    }


def test_change_counts_for_all_partitions_is_durable_and_is_said(data: Path, tmp_path: Path) -> None:
    done = command("configure", "data", "telemetry", "retention_ms=7d", "segment_entries=10", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "telemetry-0: retention_ms 0 -> 7d",
        "telemetry-0: segment_entries is already 10",
        "telemetry-1: retention_ms 0 -> 7d",
        "telemetry-1: segment_entries is already 10",
        "takes effect at the next start, which deletes what retention does not keep",
    ]
    for partition in (0, 1):
        assert settings(data, "telemetry", partition) == LogConfig(
            retention_ms=7 * DAY_MS, segment_entries=10
        )
    assert settings(data, "other") == LogConfig()


def test_time_without_a_unit_is_said_with_the_one_that_it_was_taken_for(data: Path, tmp_path: Path) -> None:
    done = command("configure", "data", "other", "retention_ms=7", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "other-0: retention_ms 0 -> 7ms"


def test_programs_get_values_defaults_and_what_changed(data: Path, tmp_path: Path) -> None:
    found = json.loads(command("configure", "data", "--json", cwd=tmp_path).stdout)
    assert [(one["log"], one["partition"]) for one in found["logs"]] == [
        ("other", 0), ("telemetry", 0), ("telemetry", 1),
    ]  # fmt: skip
    assert found["logs"][1]["settings"]["segment_entries"] == {"value": 10, "default": 1 << 22}
    words = ("configure", "data", "other", "compression=zstd", "compression_level=3", "--json")
    (one,) = json.loads(command(*words, cwd=tmp_path).stdout)["logs"]
    assert one["changed"] == {"compression": {"old": "none", "new": "zstd"}}
    assert one["settings"]["compression"] == {"value": "zstd", "default": "none"}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("data", "other", "retention=7d"), 64, "unknown setting 'retention'; did you mean 'retention_ms'?"),
        (("data", "other", "retention_ms"), 64, "missing value of retention_ms: expected retention_ms=VALUE"),
        (
            ("data", "other", "retention_ms=7 weeks"),
            64,
            "invalid retention_ms: expected a time in us, ms, s, min, h or d, got '7 weeks'",
        ),
        (
            ("data", "other", "segment_bytes=5GiB"),
            64,
            "invalid segment_bytes: expected a number from 1 to",
        ),
        (
            ("data", "other", "compression=gzip"),
            64,
            "invalid compression: expected one of none, zstd, got 'gzip'",
        ),
        (("data", "other", "compact=1", "compact=0"), 64, "compact is given twice"),
        (("data", "retention_ms=7d"), 64, "invalid log name 'retention_ms=7d'"),
        (("data", "--partition", "1"), 64, "--partition needs the name of a log"),
        (("data", "othr", "retention_ms=7d"), 1, "did you mean 'other'?"),
        (("data", "other", "retention_ms=7d", "--partition", "2"), 1, "no partition 2"),
        (("nothing",), 1, "not a Timestone store"),
    ],
)
def test_mistake_is_one_line_and_nothing_changes(
    data: Path, tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    done = command("configure", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert settings(data, "other") == LogConfig()


def test_log_that_the_catalogue_has_lost_is_said_to_be(data: Path, tmp_path: Path) -> None:
    (data / "catalog.db").unlink()
    assert "other-0      not in the catalogue" in command("configure", "data", cwd=tmp_path).stdout
    assert "not in the catalogue" in command("configure", "data", "other", cwd=tmp_path).stdout
    done = command("configure", "data", "other", "retention_ms=1d", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the catalogue of data has no settings of other-0; start the server once" in done.stderr


@pytest.mark.slow
def test_server_is_stopped_configured_and_started_and_old_segments_go(tmp_path: Path) -> None:
    serve = ("serve", "--data", "data", "--mqtt", "127.0.0.1:0", "--ready-file", "ready.json")
    with Running(*serve, "--log-segment-entries", "10", cwd=tmp_path) as server:
        ready = server.wait_for_json(tmp_path / "ready.json")
        publish(ready, count=30)
        shown = command("configure", "data", cwd=tmp_path)
        assert (shown.returncode, shown.stdout.split()[:2]) == (0, ["mqtt-0", "segment_entries=10"])
        assert server.stop()[0] == 0
    assert command("configure", "data", "mqtt", "retention_bytes=1", cwd=tmp_path).returncode == 0
    assert len(list((tmp_path / "data" / "mqtt-0").glob("*.index"))) == 3
    with Running(*serve, "--store-delete-delay-ms", "0", cwd=tmp_path) as server:
        server.wait_for_json(tmp_path / "ready.json")
        wait_for(lambda: len(list((tmp_path / "data" / "mqtt-0").glob("*.index"))) == 1)
        with timestone.view(tmp_path / "data") as view:
            assert view.log("mqtt").start_offset == 20
        assert server.stop()[0] == 0


@pytest.mark.slow
def test_running_server_is_configured_and_old_segments_go_at_once(tmp_path: Path) -> None:
    serve = ("serve", "--data", "data", "--mqtt", "127.0.0.1:0", "--ready-file", "ready.json")
    options = ("--log-segment-entries", "10", "--store-delete-delay-ms", "0")
    with Running(*serve, *options, cwd=tmp_path) as server:
        publish(server.wait_for_json(tmp_path / "ready.json"), count=30)
        done = command("configure", "data", "mqtt", "retention_bytes=1", "topic_count=7", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "mqtt-0: retention_bytes 0 -> 1",
            "mqtt-0: topic_count 1_000_000 -> 7",
            "in effect in the running server, which deletes what retention does not keep",
            "topic_count: takes effect at the next start",
        ]
        wait_for(lambda: len(list((tmp_path / "data" / "mqtt-0").glob("*.index"))) == 1)
        again = command("configure", "data", "mqtt", "retention_bytes=1", cwd=tmp_path)
        assert again.stdout == "mqtt-0: retention_bytes is already 1\n"
        wrong = command("configure", "data", "mqtt", "segment_bytes=0", cwd=tmp_path)
        assert (wrong.returncode, wrong.stdout) == (64, "")
        assert len(wrong.stderr.splitlines()) == 1 and "segment_bytes" in wrong.stderr
        found = json.loads(command("configure", "data", "mqtt", "compact=yes", "--json", cwd=tmp_path).stdout)
        assert found["is_live"] is True
        assert found["logs"][0]["changed"] == {"compact": {"old": False, "new": True}}
        server.process.kill()
        server.process.wait()
    config = settings(tmp_path / "data", "mqtt")
    assert (config.retention_bytes, config.topic_count, config.compact) == (1, 7, True)


def test_store_of_a_program_without_a_control_socket_is_not_changed(data: Path, tmp_path: Path) -> None:
    with timestone.open(data) as store:
        before = store.log("telemetry").config
        refused = command("configure", "data", "telemetry", "retention_bytes=1", cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "which has no control socket; stop it first" in refused.stderr
        assert store.log("telemetry").config == before


def publish(ready: Mapping[str, Any], count: int) -> None:
    host, port = ready["fronts"]["mqtt"]["address"].split(":")
    messages: list[Any] = [("site/1", str(number), 1, False) for number in range(count)]
    multiple(messages, hostname=host, port=int(port))
