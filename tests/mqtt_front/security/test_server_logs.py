"""Who may read over MQTT what the server records about itself, and that no client writes there."""

from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.packets import Publish
from mqtt_front.reasons import Reason
from mqtt_front.settings import MqttSettings, Route
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server
from timestone.errors import InvalidName
from timestone_access.passwords.password_file import set_password

OWN, LOG = "$timestone/metrics", "timestone.metrics"
ACL = "user monitor\ntopic read $timestone/#\nuser device\ntopic readwrite #\n"
USERS = ("monitor", "device", "backend")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    with timestone.open(tmp_path / "data") as store:
        store.log(LOG).append(b"sample", topic=OWN)
    for user in USERS:
        set_password(tmp_path / "passwords", user, b"password-1")
    (tmp_path / "acl").write_text(ACL)
    return tmp_path


def granted(files: Path, users: tuple[str | None, ...], **settings: Any) -> dict[str | None, int]:
    """Return by user what the server answers to a subscription to the samples; it delivers those that it grants."""
    answers = {}
    with mqtt_server(files / "data", **settings) as server:
        for user in users:
            with RawClient(server.address, 5) as client:
                client.connect(f"of-{user}", user=user, password=None if user is None else b"password-1")
                replay, plain, every = client.subscribe(f"$stream/{LOG}/@earliest", "$timestone/#", "#")
                assert replay == plain
                assert every in (1, Reason.NOT_AUTHORIZED)
                answers[user] = plain
                if plain == 1:
                    found = client.expect(Publish)
                    assert (found.topic, found.payload) == (OWN, b"sample")
                client.expect_silence()
    return answers


def test_without_any_login_clients_of_this_machine_may(files: Path) -> None:
    assert granted(files, (None,)) == {None: 1}


def test_with_logins_only_backends_may(files: Path) -> None:
    found = granted(files, USERS, password_file=files / "passwords", backend_users=("backend",))
    assert found == {"monitor": Reason.NOT_AUTHORIZED, "device": Reason.NOT_AUTHORIZED, "backend": 1}


def test_with_an_access_file_its_rules_decide_and_a_wildcard_is_not_one(files: Path) -> None:
    security = {"password_file": files / "passwords", "acl_file": files / "acl"}
    found = granted(files, USERS, **security)
    assert found == {"monitor": 1, "device": Reason.NOT_AUTHORIZED, "backend": Reason.NOT_AUTHORIZED}


def test_no_route_and_no_default_leads_there() -> None:
    with pytest.raises(InvalidName, match="are the server's own"):
        Route(filter="#", log=LOG)
    with pytest.raises(InvalidName, match="are the server's own"):
        MqttSettings(default_log=LOG)
