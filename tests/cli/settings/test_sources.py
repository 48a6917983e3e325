from pathlib import Path

import pytest

from timestone_cli.errors import UsageError
from timestone_cli.settings.schema import Setting
from timestone_cli.settings.sources import read_configuration

SETTINGS = [
    Setting("ack", str, "synced"),
    Setting("data", Path, Path("timestone-data")),
    Setting("store.tail_bytes", int, 1, low=0),
    Setting("store.recovery", str, "repair"),
    Setting("mqtt.listen", str, "127.0.0.1:1883"),
    Setting("mqtt.limits.packet_bytes", int, 1),
    Setting("mqtt.routes", dict[str, str], {}),
]


def read(
    tmp_path: Path, *, toml: str | None = None, options: dict[str, str] | None = None, **environment: str
) -> dict[str, object]:
    file = None
    if toml is not None:
        file = tmp_path / "serve.toml"
        file.write_text(toml)
    found = read_configuration(SETTINGS, options=options or {}, environment=environment, file=file)
    return dict(found.values)


def test_nothing_given_is_nothing_set(tmp_path: Path) -> None:
    assert read(tmp_path, toml="") == {}


def test_option_goes_before_environment_before_file(tmp_path: Path) -> None:
    toml = 'ack = "file"\n[mqtt]\nlisten = "file"\n[store]\ntail_bytes = "1 KiB"'
    found = read(
        tmp_path,
        toml=toml,
        options={"ack": "option"},
        TIMESTONE_ACK="environment",
        TIMESTONE_MQTT_LISTEN="environment",
    )
    assert found == {"ack": "option", "mqtt.listen": "environment", "store.tail_bytes": 1024}


def test_tables_nest_and_a_table_can_be_a_value(tmp_path: Path) -> None:
    toml = '[mqtt.limits]\npacket_bytes = 5\n[mqtt.routes]\n"a/#" = "a"'
    assert read(tmp_path, toml=toml) == {"mqtt.limits.packet_bytes": 5, "mqtt.routes": {"a/#": "a"}}


def test_the_source_of_a_value_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('data = "x"')
    found = read_configuration(
        SETTINGS,
        options={"ack": "a"},
        environment={"TIMESTONE_STORE_TAIL_BYTES": "1"},
        file=tmp_path / "a.toml",
    )
    assert found.sources == {
        "ack": "--ack",
        "data": f"data in {tmp_path / 'a.toml'}",
        "store.tail_bytes": "TIMESTONE_STORE_TAIL_BYTES",
    }


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("akc = 1", r"unknown key 'akc'; did you mean 'ack'\?"),
        ("[store]\ntail_byte = 1", r"unknown key 'store.tail_byte'; did you mean 'store.tail_bytes'\?"),
        ("tail_bytes = 1", r"unknown key 'tail_bytes'; did you mean 'store.tail_bytes'\?"),
        ("[mqqt]\nlisten = 'x'", r"unknown key 'mqqt.listen'; did you mean 'mqtt.listen'\?"),
        ("[store]\nack = 'x'", r"unknown key 'store.ack'; did you mean"),
        ("[wholly_other]", r"unknown key 'wholly_other'$"),
        ("mqtt = 5", r"unknown key 'mqtt'"),
        ("[store]\ntail_bytes = -1", r"store.tail_bytes in .*serve.toml: expected a number from 0, got -1"),
        ("[store]\ntail_bytes = 'x'", r"store.tail_bytes in .*: expected a number, got 'x'"),
        ("[store", r"serve.toml: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_nearest_right_name(
    tmp_path: Path, toml: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(tmp_path, toml=toml)


def test_a_file_that_is_not_text_or_not_there_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_configuration(SETTINGS, options={}, environment={}, file=tmp_path / "a.toml")
    with pytest.raises(UsageError, match=r"b\.toml: No such file or directory"):
        read_configuration(SETTINGS, options={}, environment={}, file=tmp_path / "b.toml")


def test_wrong_values_name_where_they_were_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--store-tail-bytes: expected a number, got 'x'"):
        read(tmp_path, options={"store.tail_bytes": "x"})
    with pytest.raises(UsageError, match=r"^TIMESTONE_STORE_TAIL_BYTES: expected a number, got 'y'"):
        read(tmp_path, TIMESTONE_STORE_TAIL_BYTES="y")


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("TIMESTONE_DTAA", "unknown setting TIMESTONE_DTAA in the environment; did you mean TIMESTONE_DATA?"),
        ("TIMESTONE_MQTT_LISTNE", "…; did you mean TIMESTONE_MQTT_LISTEN?"),
        ("TIMESTONE_SERVICE_HOST", None),  # what Kubernetes sets for a service called "timestone"
        ("TIMESTONE_PORT_1883_TCP", None),
        ("TIMESTONE_PURE", None),  # read by the engine
        ("HOME", None),
    ],
)
def test_a_misspelled_variable_is_remarked_upon_and_strangers_are_left_alone(
    name: str, remark: str | None
) -> None:
    found = read_configuration(SETTINGS, options={}, environment={name: "x"}, file=None)
    assert found.values == {}
    assert [line.partition("; ")[2] for line in found.remarks] == (
        [remark.partition("; ")[2]] if remark else []
    )
