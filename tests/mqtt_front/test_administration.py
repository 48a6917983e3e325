"""What operators ask of a front of several parts."""

import asyncio
import logging
from pathlib import Path

from mqtt_front.administration import slowness
from mqtt_front.front import MqttFront
from mqtt_front.settings import MqttSettings
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer
from timestone.store import Store
from timestone_access.passwords.password_file import set_password


def test_front_that_does_not_run_has_no_clients(store: Store) -> None:
    front = MqttFront(store, MqttSettings(), log=logging.getLogger("mqtt"))
    assert (list(front.clients()), front.disconnect("a", None), front.end_session("a", None)) == (
        [],
        [],
        None,
    )
    assert (front.retained("t"), front.client("a", None), front.watch("a", None, 1)) == (None, None, [])
    assert (front.may_read(None, ["a"]), front.has_logins, slowness([])) == ([False], False, None)


def test_clients_of_all_parts_are_found(server: MqttServer) -> None:
    with RawClient(server.address, 5) as client:
        client.connect("device")
        client.subscribe("a/#")

        def look() -> tuple[list[str], str]:
            front = server.front
            part = MqttFront(front._store, front._settings, log=front._log)
            part._broker, front._broker = front._broker, None
            front._homes[3] = part
            rows = [row["client"] for row in front.clients()]
            found = front.client("device", None)
            front._broker = part._broker
            front._homes.clear()
            assert found is not None
            return rows, found["subscriptions"][0]["filter"]

        assert server.call(look) == (["device"], "a/#")


def test_node_of_a_cluster_knows_the_users_while_others_lead(store: Store, tmp_path: Path) -> None:
    passwords, rules = tmp_path / "passwords", tmp_path / "acl"
    set_password(passwords, "anna", b"one")
    rules.write_text("user anna\ntopic read a/#\n")
    settings = MqttSettings(listen="127.0.0.1:0", password_file=passwords, acl_file=rules)

    async def run() -> None:
        front = MqttFront(store, settings, log=logging.getLogger("mqtt"))
        assert not await front.login("anna", "one", "127.0.0.1")
        front.open_doors()
        try:
            assert await front.login("anna", "one", "127.0.0.1")
            assert not await front.login("anna", "two", "127.0.0.1")
            assert front.may_read("anna", ["a/b", "a/#", "b"]) == [True, True, False]
            set_password(passwords, "anna", b"two")
            rules.write_text("user anna\ntopic read b\n")
            await front.reload()
            assert await front.login("anna", "two", "127.0.0.1")
            assert front.may_read("anna", ["a/b", "b"]) == [False, True]
        finally:
            front.close_doors()

    asyncio.run(run())
