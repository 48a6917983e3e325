import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.listener_settings import ListenerSettings

TLS: dict[str, Any] = {"certificate": Path("c"), "key": Path("k")}
MUTUAL: dict[str, Any] = TLS | {"client_ca": Path("ca")}


def listener(address: str = "127.0.0.1:0", **settings: Any) -> ListenerSettings:
    return ListenerSettings(address=address, **settings)


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        ({}, "TCP"),
        (TLS, "TLS"),
        ({"websocket": True}, "WebSocket"),
        ({"websocket": True, "certificate": Path("both")}, "WebSocket over TLS"),
    ],
)
def test_protocol_of_a_listener_follows_from_its_settings(settings: dict[str, Any], protocol: str) -> None:
    assert listener(**settings).protocol == protocol


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"key": Path("k")}, "key needs certificate"),
        ({"ciphers": "ALL"}, "ciphers needs certificate"),
        ({"client_ca": Path("c")}, "client_ca needs certificate"),
        (TLS | {"client_crl": Path("c")}, "client_crl needs client_ca"),
        (TLS | {"require_certificate": True}, "require_certificate needs client_ca"),
        (TLS | {"user_from": "cn"}, "user_from needs client_ca"),
        ({"origins": ("https://example.org",)}, "origins needs websocket"),
    ],
)
def test_setting_without_effect_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"listener 127.0.0.1:0: {complaint}"):
        listener(**settings)


def test_combined_settings_are_accepted() -> None:
    full = listener(**MUTUAL, client_crl=Path("l"), require_certificate=True, user_from="san")
    assert full.host_and_port == ("127.0.0.1", 0)
    assert full.is_local
    assert not listener("0.0.0.0:1").is_local


def test_invalid_address_is_refused() -> None:
    with pytest.raises(ValueError, match=r"invalid address: expected HOST:PORT, .* got 'here'"):
        listener("here")


def test_every_setting_has_a_help_text() -> None:
    for setting in dataclasses.fields(ListenerSettings):
        assert setting.metadata["help"], setting.name
