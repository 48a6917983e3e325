"""Files that change while the server runs: the effect of a reload on connected clients."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqtt_front.codec.packets import Connack, Connect, Disconnect, Puback, Publish
from mqtt_front.listener_settings import ListenerSettings
from tests.support.certificates import Authority
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.signing_keys import jwk, token, write_key_set
from timestone_access.passwords.password_file import remove_user, set_password
from timestone_access.settings import JwtSettings

Edit = Callable[[], object]


def let_in(server: MqttServer, user: str | None, password: bytes | None, client_id: str = "") -> RawClient:
    client = RawClient(server.address, 5)
    client.send(Connect(client_id or user or "anonymous", 5, True, 0, None, user, password))
    assert client.expect(Connack).reason == 0
    return client


def reason(server: MqttServer, user: str, password: bytes) -> int:
    with RawClient(server.address, 5) as client:
        client.send(Connect(f"again-{user}", 5, True, 0, None, user, password))
        return client.expect(Connack).reason


def test_reload_ends_connections_of_removed_or_changed_users(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    for user in ("stays", "changes", "goes"):
        set_password(passwords, user, b"old")
    with mqtt_server(tmp_path / "store", password_file=passwords) as server:
        stays, changes, goes = (let_in(server, user, b"old") for user in ("stays", "changes", "goes"))
        set_password(passwords, "changes", b"new")
        remove_user(passwords, "goes")
        set_password(passwords, "comes", b"new")
        stays.expect_silence()
        goes.expect_silence()
        server.run(server.front.reload())
        stays.expect_silence()
        for client in (changes, goes):
            assert client.expect(Disconnect).reason == 0x87
            client.expect_closed()
        assert [reason(server, user, b"new") for user in ("changes", "comes", "goes")] == [0, 0, 0x86]
        assert reason(server, "changes", b"old") == 0x86
        for client in (stays, changes, goes):
            client.close()


def test_reloaded_rules_apply_at_once_to_publishes_and_existing_subscriptions(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite a/#\n")
    with mqtt_server(tmp_path / "store", acl_file=acl) as server, let_in(server, None, None) as client:
        assert client.subscribe("#") == (1,)
        client.publish("a/1", b"1")
        client.publish("a/2", b"2")
        assert [one.topic for one in client.receive(2)] == ["a/1", "a/2"]
        acl.write_text("topic readwrite a/2\ntopic write b\ntopic read b\n")
        server.run(server.front.reload())
        client.send(Publish("a/1", b"3", 1, packet_id=3))
        assert client.expect(Puback).reason == 0x87
        client.publish("a/2", b"4")
        client.publish("b", b"5")
        assert [one.topic for one in client.receive(2)] == ["a/2", "b"]
        acl.write_text("topic readwrite a/#\n")
        server.run(server.front.reload())
        client.publish("a/1", b"6")
        assert client.receive(1)[0].payload == b"6"


def test_reload_ends_connections_of_withdrawn_keys(tmp_path: Path) -> None:
    keys = write_key_set(tmp_path / "jwks", jwk("ES256"), jwk("EdDSA"))
    with mqtt_server(tmp_path / "store", jwt=JwtSettings(jwks=keys)) as server:
        stays = let_in(server, None, token("EdDSA"), "stays")
        goes = let_in(server, None, token("ES256"), "goes")
        write_key_set(keys, jwk("EdDSA"))
        server.run(server.front.reload())
        assert goes.expect(Disconnect).reason == 0x87
        stays.expect_silence()
        stays.close()
        goes.close()


def test_reloaded_certificates_apply_to_the_next_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, client = authority.issue_server(), authority.issue("device-7")
    revocations = authority.revoke()
    listener = ListenerSettings(
        address="127.0.0.1:0",
        certificate=own.path,
        key=own.key_path,
        client_ca=authority.path,
        client_crl=revocations,
        require_certificate=True,
    )

    def serial() -> int:
        context = ssl.create_default_context(cafile=authority.path)
        context.load_cert_chain(client.path, client.key_path)
        with RawClient(server.address, 5) as raw:
            raw.socket = context.wrap_socket(raw.socket, server_hostname="localhost")
            raw.connect("c")
            certificate = raw.socket.getpeercert()
            assert certificate is not None
            return int(str(certificate["serialNumber"]), 16)

    with mqtt_server(tmp_path / "store", listen=None, listeners=(listener,), allow_anonymous=True) as server:
        assert serial() == own.certificate.serial_number
        renewed = authority.issue_server()  # into the same files
        assert serial() == own.certificate.serial_number
        server.run(server.front.reload())
        assert serial() == renewed.certificate.serial_number
        authority.revoke(client)
        server.run(server.front.reload())
        with pytest.raises((ssl.SSLError, AssertionError)):
            serial()


@pytest.mark.parametrize("broken", ["passwords", "acl", "jwks", "certificate"])
def test_reload_of_an_unusable_file_changes_nothing(tmp_path: Path, broken: str) -> None:
    authority = Authority(tmp_path)
    own = authority.issue_server()
    files = {name: tmp_path / name for name in ("passwords", "acl", "jwks")} | {"certificate": own.path}
    set_password(files["passwords"], "alice", b"old")
    files["acl"].write_text("user alice\ntopic a\n")
    write_key_set(files["jwks"], jwk("ES256"))
    listener = ListenerSettings(address="127.0.0.1:0", certificate=own.path, key=own.key_path)
    with mqtt_server(
        tmp_path / "store",
        listeners=(listener,),
        password_file=files["passwords"],
        acl_file=files["acl"],
        jwt=JwtSettings(jwks=files["jwks"]),
    ) as server:
        with let_in(server, "alice", b"old") as client:
            set_password(files["passwords"], "alice", b"new")
            files["acl"].write_text("user alice\ntopic b\n")
            files[broken].write_text("nonsense") if broken != "acl" else files["acl"].unlink()
            with pytest.raises(ValueError, match=broken if broken != "certificate" else r"server\.pem"):
                server.run(server.front.reload())
            client.publish("a", b"still")
        assert reason(server, "alice", b"old") == 0


def test_start_fails_with_an_unusable_file(tmp_path: Path) -> None:
    missing: list[dict[str, Any]] = [{name: tmp_path / "missing"} for name in ("password_file", "acl_file")]
    for settings in missing:
        with (
            pytest.raises(ValueError, match="missing: No such file"),
            mqtt_server(tmp_path / "s", **settings),
        ):
            pass


def test_log_has_no_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every way to come in and to fail at it, logged as finely as can be; then a look for what must not be there."""
    caplog.set_level(logging.DEBUG)
    set_password(tmp_path / "passwords", "alice", b"right-hunter2")
    keys = write_key_set(tmp_path / "jwks", jwk("HS256"))
    good, bad = token("HS256", sub="alice"), token("ES256", sub="alice")
    secrets = [b"right-hunter2", b"wrong-hunter2", good, bad, good.split(b".")[2], bad.split(b".")[2]]
    with mqtt_server(
        tmp_path / "store", password_file=tmp_path / "passwords", jwt=JwtSettings(jwks=keys)
    ) as server:
        for password in (b"right-hunter2", b"wrong-hunter2", good, bad, bad[:-5], b"eyJ.." + bad):
            for level in (4, 5):
                with RawClient(server.address, level) as client:
                    client.send(Connect("c", level, True, 0, None, "alice", password))
                    client.next_packet()
        for start in (b"\x10", b"\x82"):  # a packet that ends behind the password, and one that is not valid
            with RawClient(server.address) as client:
                client.send_bytes(
                    start + b"\x7f\x00\x04MQTT\x04\xc2\x00\x00\x00\x01c\x00\x05alice\x00\x0dwrong-hunter2"
                )
                client.send_bytes(bytes(200))
                client.next_packet()
        server.run(server.front.reload())
    assert "wrong password for user 'alice'" in caplog.text
    assert "token signed with an unknown key" in caplog.text
    text = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    for secret in [*secrets, b"$argon2id$", b"0123456789abcdef0123456789abcdef"]:
        assert secret.decode() not in text
