"""Settings refuse invalid values, with messages that say what to do."""

import dataclasses
import re
from pathlib import Path

import pytest

from mqtt_front.security.settings import SecuritySettings
from mqtt_front.settings import MqttSettings, Route
from timestone.config import Ack


def test_defaults_listen_on_loopback_only() -> None:
    (only,) = MqttSettings().all_listeners
    assert only.host_and_port == ("127.0.0.1", 1883)
    assert MqttSettings().ack is None


@pytest.mark.parametrize("listen", ["0.0.0.0:1883", "192.0.2.1:1883", "[::]:1883", "example:1883", ":1883"])
def test_anonymous_access_from_other_machines_needs_an_explicit_setting(listen: str) -> None:
    with pytest.raises(ValueError, match="allow_anonymous_remote = true"):
        MqttSettings(listen=listen)
    assert MqttSettings(listen=listen, allow_anonymous_remote=True).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1", "1883", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", ""])
def test_an_address_has_host_and_port(listen: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        MqttSettings(listen=listen)


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert MqttSettings(listen="[::1]:1").all_listeners[0].host_and_port == ("::1", 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"packet_bytes": 1},
        {"receive_maximum": 0},
        {"inflight_count": 65_536},
        {"unsent_bytes": 2**31},
        {"submitted_bytes": 2**63},
        {"default_log": "a/b"},
        {"ack": "fast"},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        MqttSettings(**wrong)  # type: ignore[arg-type]


def test_routes_have_a_filter_and_a_log() -> None:
    assert Route(filter="a/#", log="a").log == "a"
    with pytest.raises(ValueError, match="stands alone"):
        Route(filter="a#", log="a")
    with pytest.raises(ValueError, match="cannot name a log"):
        Route(filter="a", log="../a")


def test_every_setting_says_what_it_is_for() -> None:
    for setting in dataclasses.fields(MqttSettings):
        assert setting.metadata["help"], setting.name


def test_ack_level_may_be_given_as_a_string() -> None:
    assert MqttSettings(ack="written").ack is Ack.WRITTEN  # type: ignore[arg-type]


def test_docs_list_every_limit_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))
    security = {setting.name for setting in dataclasses.fields(SecuritySettings)}
    numbers = {
        setting.name: str(setting.default)
        for setting in dataclasses.fields(MqttSettings)
        if type(setting.default) is int and setting.name not in security
    }
    assert rows == numbers
