import re

import pytest

from timestone.address import check_host, is_loopback, parse_address, shown_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:1883", "127.0.0.1", 1883),
        ("[::1]:0", "::1", 0),
        ("broker:65535", "broker", 65_535),
        (":1", "", 1),
    ],
)
def test_host_and_port_are_read_and_shown_again(text: str, host: str, port: int) -> None:
    assert parse_address(text, setting="listen") == (host, port)
    assert shown_address(host, port) == text


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "1883", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "", 5, b"a:1", None]
)
def test_invalid_address_is_refused_with_the_name_of_the_setting(text: object) -> None:
    with pytest.raises(ValueError, match="invalid listen: expected HOST:PORT"):
        parse_address(text, setting="listen")


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64 + ".example", "a\0b", "\udcff"])
def test_host_that_cannot_be_looked_up_is_refused_with_the_name_of_the_setting(host: str) -> None:
    said = re.escape(f"invalid listen: expected the name or address of a host, got {host!r}")
    with pytest.raises(ValueError, match=f"^{said}$"):
        parse_address(f"{host}:1883", setting="listen")
    with pytest.raises(ValueError, match=f"^{said}$"):
        check_host(host, setting="listen")


@pytest.mark.parametrize(
    "host", ["", "a", "a.example.", "fe80::1%eth0", "127.0.0.1", "bücher.example", "a_b"]
)
def test_host_that_can_be_looked_up_is_accepted(host: str) -> None:
    check_host(host, setting="listen")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("", False),
        ("0.0.0.0", False),
        ("example", False),
    ],
)
def test_loopback_is_recognised_without_a_name_lookup(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
