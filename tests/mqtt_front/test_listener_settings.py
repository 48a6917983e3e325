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
def test_what_is_spoken_follows_from_the_settings(settings: dict[str, Any], protocol: str) -> None:
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
def test_a_setting_that_would_do_nothing_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"listener 127.0.0.1:0: {complaint}"):
        listener(**settings)


def test_settings_that_belong_together_are_taken() -> None:
    full = listener(**MUTUAL, client_crl=Path("l"), require_certificate=True, user_from="san")
    assert full.host_and_port == ("127.0.0.1", 0)
    assert full.is_local
    assert not listener("0.0.0.0:1").is_local


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="address is 'here'"):
        listener("here")


def test_every_setting_says_what_it_is_for() -> None:
    for setting in dataclasses.fields(ListenerSettings):
        assert setting.metadata["help"], setting.name
