"""Settings as options of a command."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import click
import pytest

from timestone.config import Ack
from timestone_cli.settings.options import given_texts, metavar, setting_options
from timestone_cli.settings.schema import settings_of


@dataclass(frozen=True)
class Inner:
    user: str = field(default="", metadata={"help": "who"})


@dataclass(frozen=True)
class Settings:
    listen: str = field(default="x", metadata={"heading": "listeners", "metavar": "HOST:PORT"})
    name: str = "x"
    ack: Ack | None = None
    level: Literal["low", "high"] = "low"
    file: Path | None = None
    packet_bytes: int = field(default=1, metadata={"heading": "limits"})
    scrub_bytes_per_s: int = 1
    wait_ms: int = 1
    keep_s: int = 1
    connects_per_s: int = 1
    count: int = 1
    share: float = 0.5
    files: tuple[Path, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    compact: bool = False
    login: Inner = field(default=Inner(), metadata={"help": "who may connect"})


SETTINGS = list(settings_of(Settings, "mqtt"))


def test_metavar_says_the_kind_of_value() -> None:
    assert {setting.key.removeprefix("mqtt."): metavar(setting) for setting in SETTINGS} == {
        "listen": "HOST:PORT",
        "name": "TEXT",
        "ack": "[memory|written|synced]",
        "level": "[low|high]",
        "file": "FILE",
        "packet_bytes": "SIZE",
        "scrub_bytes_per_s": "SIZE",
        "wait_ms": "DURATION",
        "keep_s": "DURATION",
        "connects_per_s": "COUNT",
        "count": "COUNT",
        "share": "NUMBER",
        "files": "LIST",
        "options": "TABLE",
        "compact": "[true|false]",
        "login.user": "TEXT",
    }


def command() -> click.Command:
    return click.Command("prog", params=[*setting_options(SETTINGS, "MQTT")])


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--mqtt-name", "a b"], {"mqtt.name": "a b"}),
        (["--mqtt-compact"], {"mqtt.compact": "true"}),
        (["--mqtt-compact", "--mqtt-name", "x"], {"mqtt.compact": "true", "mqtt.name": "x"}),
        (["--mqtt-compact", "no"], {"mqtt.compact": "no"}),
        (["--mqtt-count", "-1"], {"mqtt.count": "-1"}),
        (["--mqtt-login-user="], {"mqtt.login.user": ""}),
    ],
)
def test_given_options_are_texts_by_key(words: list[str], given: dict[str, str]) -> None:
    assert given_texts(SETTINGS, command().make_context("prog", words).params) == given


def test_options_are_listed_under_the_headings_of_their_settings() -> None:
    headings = {name: getattr(option, "heading", "") for option in command().params for name in option.opts}
    assert headings["--mqtt-listen"] == headings["--mqtt-file"] == "MQTT: listeners"
    assert headings["--mqtt-packet-bytes"] == headings["--mqtt-compact"] == "MQTT: limits"
    assert headings["--mqtt-login-user"] == "MQTT: who may connect"


@pytest.mark.parametrize(
    ("name", "incomplete", "completed"),
    [
        ("mqtt_ack", "", [("memory", "plain"), ("written", "plain"), ("synced", "plain")]),
        ("mqtt_level", "h", [("high", "plain")]),
        ("mqtt_compact", "t", [("true", "plain")]),
        ("mqtt_file", "da", [("da", "file")]),
        ("mqtt_name", "x", []),
    ],
)
def test_shell_completes_words_and_paths(
    name: str, incomplete: str, completed: list[tuple[str, str]]
) -> None:
    (option,) = (option for option in command().params if option.name == name)
    items = option.shell_complete(click.Context(command()), incomplete)
    assert [(item.value, item.type) for item in items] == completed
