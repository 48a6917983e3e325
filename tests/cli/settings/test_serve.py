from pathlib import Path

import pytest

from tests.cli.line_front import LineFront, LineSettings
from timestone.config import Ack, LogConfig, StoreConfig
from timestone_cli.errors import UsageError
from timestone_cli.settings.serve import (
    ServeSettings,
    catalogue,
    cluster_remarks,
    front_settings,
    serve_settings,
    store_config,
)
from timestone_cli.settings.sources import read_configuration

GROUPS = catalogue({"line": LineFront})
SETTINGS = [setting for group in GROUPS.values() for setting in group]


def test_every_setting_has_help_and_a_name_of_its_own() -> None:
    for attribute in ("key", "option", "variable"):
        names = [getattr(setting, attribute) for setting in SETTINGS]
        assert len(set(names)) == len(names)
    assert [
        setting.key for setting in SETTINGS if not setting.help and not setting.key.startswith("line.")
    ] == []


def test_the_catalogue_holds_every_setting_of_the_engine_once() -> None:
    keys = {setting.key for setting in SETTINGS}
    assert {
        "data",
        "ack",
        "ready_file",
        "log_level",
        "log_format",
        "store.tail_bytes",
        "log.segment_bytes",
        "line.listen",
    } <= keys
    assert "store.ack" not in keys
    assert "store.log" not in keys


def test_a_front_s_listen_has_a_short_option() -> None:
    (listen,) = (setting for setting in SETTINGS if setting.key == "line.listen")
    assert (listen.option, listen.aliases) == ("--line-listen", ("--line",))


def test_given_values_reach_the_classes_and_the_rest_are_defaults() -> None:
    given = read_configuration(
        SETTINGS,
        options={"ack": "written", "store.tail_bytes": "1 MiB", "log.segment_age_ms": "1 h", "line.log": "x"},
        environment={"TIMESTONE_DATA": "/srv/log"},
        file=None,
    )
    assert serve_settings(given) == ServeSettings(data=Path("/srv/log"))
    expected = StoreConfig(ack=Ack.WRITTEN, tail_bytes=1 << 20, log=LogConfig(segment_age_ms=3_600_000))
    assert store_config(given) == expected
    assert front_settings(LineFront, "line", given) == LineSettings(log="x")


def test_settings_of_logs_that_a_node_of_a_cluster_does_not_use_are_remarked() -> None:
    logs = {"log.topic_count": "6", "log.record_bytes": "1 KiB"}
    for options, remarks in (
        ({"cluster.etcd": "etcd://127.0.0.1:2379/plant"}, []),
        (logs, []),
        (
            {"cluster.etcd": "etcd://127.0.0.1:2379/plant", **logs},
            ["--log-record-bytes, --log-topic-count: not for"],
        ),
    ):
        given = read_configuration(SETTINGS, options=options, environment={}, file=None)
        assert [one[:46] for one in cluster_remarks(given)] == remarks


def test_nothing_given_is_the_defaults() -> None:
    given = read_configuration(SETTINGS, options={}, environment={}, file=None)
    assert serve_settings(given) == ServeSettings()
    assert store_config(given) == StoreConfig()
    assert front_settings(LineFront, "line", given) == LineSettings()


def test_what_a_class_refuses_names_the_section_and_where_it_came_from() -> None:
    given = read_configuration(SETTINGS, options={"line.listen": "0.0.0.0:1"}, environment={}, file=None)
    with pytest.raises(UsageError, match=r"^line: listening on 0\.0\.0\.0 is refused \(from --line\)$"):
        front_settings(LineFront, "line", given)


@pytest.mark.parametrize("address", ["0.0.0.0:9464", ":9464", "[::]:9464", "192.0.2.1:9464", "broker:9464"])
def test_metrics_that_other_machines_reach_have_to_be_meant(address: str) -> None:
    given = read_configuration(SETTINGS, options={"metrics": address}, environment={}, file=None)
    with pytest.raises(UsageError, match=r"can be read from other machines.*metrics_allow_remote = true"):
        serve_settings(given)
    assert ServeSettings(metrics=address, metrics_allow_remote=True).metrics_address is not None


def test_metrics_of_this_machine_need_no_more_than_an_address() -> None:
    assert ServeSettings(metrics="[::1]:0").metrics_address == ("::1", 0)
    with pytest.raises(
        ValueError, match=r"invalid metrics: expected HOST:PORT, as in 127\.0\.0\.1:1883, got '9464'"
    ):
        ServeSettings(metrics="9464")


@pytest.mark.parametrize(("text", "count"), [("all", 1_000_000), ("0", 0), ("7", 7)])
def test_recorded_clients_are_a_number_or_all(text: str, count: int) -> None:
    environment = {"TIMESTONE_METRICS_CLIENT_COUNT": text}
    given = read_configuration(SETTINGS, options={}, environment=environment, file=None)
    assert serve_settings(given).recorded_clients == count


@pytest.mark.parametrize("text", ["-1", "1000001", "some"])
def test_recorded_clients_out_of_range_are_refused(text: str) -> None:
    environment = {"TIMESTONE_METRICS_CLIENT_COUNT": text}
    with pytest.raises(UsageError, match="TIMESTONE_METRICS_CLIENT_COUNT"):
        read_configuration(SETTINGS, options={}, environment=environment, file=None)
