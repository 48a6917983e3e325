"""Requests of the control socket against a real store and a real front, without the socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from timestone.errors import UnknownLog
from timestone_access.passwords.password_file import set_password
from timestone_cli.control.actions import PAGE_COUNT, Actions, Part
from timestone_cli.control.arguments import InvalidRequest
from timestone_cli.control.protocol import REPLY_BYTES, encode_result


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MqttServer]:
    with mqtt_server(tmp_path) as running:
        yield running


def run(server: MqttServer, request: str, **arguments: Any) -> dict[str, Any]:
    (result,) = parts(server, {"request": request, **arguments})
    return result


def parts(server: MqttServer, request: dict[str, Any], *others: Part) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        return [part async for part in Actions(server.store, others or [server.front]).run(request)]

    return server.run(run())


def test_status_has_the_figures_of_each_part_and_the_ends_of_the_logs(server: MqttServer) -> None:
    with RawClient(server.address) as client:
        client.connect("c")
        client.publish("t", b"x")
        found = run(server, "status")
    assert found["fronts_with_clients"] == ["mqtt"]
    assert found["parts"]["mqtt"]["publishes_received"] == 1
    assert found["logs"] == [{"log": "mqtt", "partition": 0, "start_offset": 0, "end_offset": 1}]
    assert found["started_us"] <= found["now_us"]


def test_clients_come_in_pages_that_hold_each_once(server: MqttServer) -> None:
    clients = [RawClient(server.address) for _ in range(PAGE_COUNT + 5)]
    try:
        for number, client in enumerate(clients):
            client.connect(f"c{number}")
        first, rest, last = parts(server, {"request": "clients"})
    finally:
        for client in clients:
            client.close()
    assert len(first["rows"]) == PAGE_COUNT and last["rows"] == []
    assert [page["is_last"] for page in (first, rest, last)] == [False, False, True]
    found = [
        dict(zip(page["columns"], row, strict=True))["client"]
        for page in (first, rest)
        for row in page["rows"]
    ]
    assert found == [f"c{number}" for number in range(PAGE_COUNT + 5)]


def test_page_of_clients_with_long_names_ends_early(server: MqttServer) -> None:
    clients = [RawClient(server.address, 5) for _ in range(8)]
    try:
        for number, client in enumerate(clients):
            client.connect(f"{number}" + "é" * 30_000)
        found = parts(server, {"request": "clients"})
    finally:
        for client in clients:
            client.close()
    assert [len(page["rows"]) for page in found] == [1] * 8 + [0]
    assert all(len(encode_result(page)) < REPLY_BYTES for page in found)


def test_configure_changes_a_log_at_once_and_for_good(server: MqttServer) -> None:
    found = run(server, "configure", logs=[["mqtt", 0]], settings={"retention_ms": 5000})
    assert found["logs"] == [
        {"log": "mqtt", "partition": 0, "before": {"retention_ms": 0}, "after": {"retention_ms": 5000}}
    ]
    assert server.store.log("mqtt").config.retention_ms == 5000


def test_configure_changes_no_log_when_one_of_them_is_not_there(server: MqttServer) -> None:
    with pytest.raises(UnknownLog):
        run(server, "configure", logs=[["mqtt", 0], ["other", 0]], settings={"retention_ms": 5000})
    assert server.store.log("mqtt").config.retention_ms == 0


def test_configure_refuses_what_the_front_would_not_start_with(server: MqttServer) -> None:
    before = server.store.log("mqtt").config
    with pytest.raises(
        InvalidRequest, match=r"invalid record_bytes of log mqtt: expected at least \d+ \(packet"
    ):
        run(server, "configure", logs=[["mqtt", 0]], settings={"record_bytes": 1000})
    with pytest.raises(ValueError, match="invalid record_bytes of log mqtt"):
        server.store.log("mqtt").configure(record_bytes=1000)
    assert server.store.log("mqtt").config == before


@pytest.mark.parametrize(
    ("request_", "arguments"),
    [
        (None, {}),
        (["clients"], {}),
        ("stop", {}),
        ("disconnect", {"front": "http", "client": "c"}),
        ("disconnect", {"front": ["mqtt"], "client": "c"}),
        ("disconnect", {"front": "mqtt"}),
        ("disconnect", {"front": "mqtt", "client": "c", "user": 1}),
        ("configure", {}),
        ("configure", {"logs": [["mqtt", 0]], "settings": {}}),
        ("configure", {"logs": [], "settings": {"retention_ms": 1}}),
        ("configure", {"logs": [["mqtt"]], "settings": {"retention_ms": 1}}),
        ("configure", {"logs": [["mqtt", True]], "settings": {"retention_ms": 1}}),
        ("configure", {"logs": [["../mqtt", 0]], "settings": {"retention_ms": 1}}),
        ("configure", {"logs": [["mqtt", 0]], "settings": {"retention_ms": -1}}),
        ("configure", {"logs": [["mqtt", 0]], "settings": {"colour": "red"}}),
    ],
)
def test_wrong_request_is_refused_and_changes_nothing(
    server: MqttServer, request_: Any, arguments: dict[str, Any]
) -> None:
    before = server.store.log("mqtt").config
    with pytest.raises((InvalidRequest, UnknownLog)):
        run(server, request_, **arguments)
    assert server.store.log("mqtt").config == before
    assert server.store.log_names() == [("mqtt", 0)]


def test_part_without_clients_is_not_asked_for_them(server: MqttServer) -> None:
    class Quiet:
        name = "quiet"

        def status(self) -> dict[str, Any]:
            return {"ok": 1}

    (found,) = parts(server, {"request": "status"}, Quiet())
    assert found["fronts_with_clients"] == [] and found["parts"] == {"quiet": {"ok": 1}}


def test_session_of_a_client_has_its_subscriptions_with_their_places(server: MqttServer) -> None:
    with RawClient(server.address) as client:
        client.connect("pump")
        client.subscribe("t/#")
        (found,) = run(server, "client", client="pump")["clients"]
        assert found["subscription_count"] == 1 and found["in_flight"] == []
        (one,) = found["subscriptions"]
        assert (one["filter"], one["qos"], one["feeds"][0]["log"], one["feeds"][0]["lag"]) == (
            "t/#",
            1,
            "mqtt",
            0,
        )
    assert run(server, "client", client="tank")["clients"] == []


def test_login_is_refused_and_everything_may_be_read_without_users(server: MqttServer) -> None:
    assert run(server, "login", user="anna", password="x", address="127.0.0.1") == {"is_allowed": False}
    assert run(server, "may_read", topics=["a", "#"]) == {"may_read": [True, True]}
    with pytest.raises(InvalidRequest, match="invalid topics"):
        run(server, "may_read", topics=["a"] * 101)


def test_login_and_rules_are_those_of_mqtt(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "anna", b"secret")
    (tmp_path / "acl").write_text("user anna\ntopic read site/#\n")
    files: dict[str, Any] = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with mqtt_server(tmp_path / "data", **files) as server:
        for password, is_allowed in (("wrong", False), ("secret", True)):
            found = run(server, "login", user="anna", password=password, address="127.0.0.1")
            assert found == {"is_allowed": is_allowed}
        topics = ["site/1", "site/#", "other", "#", "$timestone/metrics", ""]
        found = run(server, "may_read", user="anna", topics=topics)
        assert found["may_read"] == [True, True, False, False, False, False]
        assert not any(run(server, "may_read", user=None, topics=topics)["may_read"])
