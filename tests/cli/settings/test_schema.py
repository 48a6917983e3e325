import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from timestone_cli.settings.schema import Setting, as_typed, build, settings_of
from timestone_cli.settings.values import convert


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Limits:
    packet_bytes: int = field(default=1 << 20, metadata={"help": "largest packet", "low": 1, "high": 1 << 28})
    handshake_ms: int = 5000
    client_bytes_per_s: int = 4 << 20


@dataclass(frozen=True)
class Settings:
    listen: str = "127.0.0.1:1883"
    colour: Colour = Colour.RED
    file: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.listen == "nowhere":
            raise ValueError("listen is nowhere")


def by_key(**options: Any) -> dict[str, Setting]:
    return {setting.key: setting for setting in settings_of(Settings, "mqtt", **options)}


def test_every_field_is_a_setting_and_nested_classes_are_deeper_tables() -> None:
    assert list(by_key()) == [
        "mqtt.listen",
        "mqtt.colour",
        "mqtt.file",
        "mqtt.limits.packet_bytes",
        "mqtt.limits.handshake_ms",
        "mqtt.limits.client_bytes_per_s",
    ]
    assert list(by_key(leave_out=("limits", "file"))) == ["mqtt.listen", "mqtt.colour"]


def test_a_setting_has_three_spellings() -> None:
    setting = by_key()["mqtt.limits.packet_bytes"]
    assert setting.option == "--mqtt-limits-packet-bytes"
    assert setting.variable == "TIMESTONE_MQTT_LIMITS_PACKET_BYTES"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mqtt.listen", "[default: 127.0.0.1:1883]"),
        ("mqtt.colour", "[default: red]"),
        ("mqtt.file", "[default: none]"),
        ("mqtt.limits.packet_bytes", "Largest packet.  [from 1 to 256 MiB; default: 1 MiB]"),
        ("mqtt.limits.handshake_ms", "[default: 5 s]"),
        ("mqtt.limits.client_bytes_per_s", "[default: 4 MiB]"),
    ],
)
def test_help_says_what_it_is_its_range_and_its_default(key: str, text: str) -> None:
    assert by_key()[key].describe() == text


def test_values_build_the_class_with_defaults_for_the_rest() -> None:
    values = {"mqtt.colour": Colour.BLUE, "mqtt.limits.handshake_ms": 7, "other.listen": "x"}
    assert build(Settings, "mqtt", values) == Settings(colour=Colour.BLUE, limits=Limits(handshake_ms=7))


def test_fields_from_elsewhere_replace_values() -> None:
    limits = Limits(packet_bytes=2)
    assert build(Settings, "mqtt", {"mqtt.limits.packet_bytes": 1}, limits=limits).limits is limits


def test_the_class_s_own_objections_pass_through() -> None:
    with pytest.raises(ValueError, match="listen is nowhere"):
        build(Settings, "mqtt", {"mqtt.listen": "nowhere"})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("segment_bytes", 100_000, "100000"),
        ("segment_bytes", 3 << 29, "1.5 GiB"),
        ("segment_bytes", (1 << 40) + 1, "1099511627777"),
        ("segment_bytes", 1023, "1_023"),
        ("retention_ms", 129_600_000, "36 h"),
        ("retention_ms", 1500, "1500 ms"),
        ("segment_entries", 4096, "4_096"),
        ("compact", True, "true"),
    ],
)
def test_a_value_is_shown_as_it_is_typed_and_never_rounded(key: str, value: Any, text: str) -> None:
    assert as_typed(value, key) == text
    assert convert(Setting(key, type(value), value), text) == value
