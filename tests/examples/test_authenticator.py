"""The plug-in of the examples, installed as a plug-in and asked by a real server about real clients."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from examples.authenticator.web_service_login import WebServiceLogin
from mqtt_front.codec.packets import Connack, Connect
from tests.cli.processes import Running
from tests.house.tree import ROOT
from tests.support.mqtt_clients import RawClient
from timestone_access.identity import Access, Cause, Credentials, Identity, Refusal, Rule

FOLDER = ROOT / "examples" / "authenticator"
PATIENCE_MS = "60000"
"""The plug-in's time limit for its service, which on a busy machine may not answer within the default of two
seconds."""


class Service(BaseHTTPRequestHandler):
    """Accepts alice, has banned mallory, fails for bob, returns odd's own text and does not know other users."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        codes = {
            "alice": 200 if asked["password"] == "secret" else 403,
            "mallory": 403,
            "bob": 500,
            "odd": 200,
        }
        answer = json.dumps({"user": "alice", "publish": ["own/%c/#"], "subscribe": ["#"]})
        self.send_response(codes.get(asked["user"], 404))
        self.end_headers()
        self.wfile.write((asked["password"] if asked["user"] == "odd" else answer).encode())

    def log_message(self, *words: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/login"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def installed(tmp_path: Path) -> Mapping[str, str]:
    """The environment in which it is installed: its folder, and the metadata that pip would write."""
    metadata = tmp_path / "site" / "web_service_login-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: web-service-login\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[timestone.mqtt.authenticators]\nweb-service = web_service_login:WebServiceLogin\n"
    )
    return {"PYTHONPATH": f"{FOLDER}:{metadata.parent}"}


@pytest.mark.slow
def test_plug_in_is_asked_about_every_login(tmp_path: Path, url: str, installed: Mapping[str, str]) -> None:
    (tmp_path / "timestone.toml").write_text(
        'mqtt.listen = "127.0.0.1:0"\nmqtt.authenticators = ["web-service"]\n'
        f'mqtt.authenticator_options.web-service.url = "{url}"\n'
        f'mqtt.authenticator_options.web-service.timeout_ms = "{PATIENCE_MS}"\nready_file = "ready.json"\n'
    )
    with Running("serve", "--config", "timestone.toml", cwd=tmp_path, environment=installed) as running:
        listening = running.wait_for_json(tmp_path / "ready.json")["fronts"]["mqtt"]["address"]
        host, _, port = listening.rpartition(":")
        logins = [
            ("alice", b"secret"),
            ("alice", b"guess"),
            ("mallory", b"x"),
            ("nobody", b"x"),
            ("bob", b"x"),
        ]
        reasons = []
        for user, password in logins:
            with RawClient((host, int(port)), 5) as client:
                client.send(Connect("dev", 5, True, 0, None, user, password))
                answer = client.expect(Connack)
                reasons.append(answer.reason)
                if answer.reason == 0:
                    client.publish("own/dev/x", b"mine")
                    assert client.subscribe("own/#") == (1,)
        assert reasons == [0, 0x86, 0x86, 0x86, 0x88]
        code, _, errors = running.stop()
        assert code == 0
        assert "secret" not in errors and "Traceback" not in errors


def asked(url: str, answer: str) -> Identity | Refusal | None:
    """Return the outcome of a login to which the service gives this answer."""
    plug_in = WebServiceLogin({"url": url, "timeout_ms": PATIENCE_MS})
    return plug_in.authenticate(Credentials("dev", "odd", answer.encode(), "::1"))


@pytest.mark.parametrize(
    ("answer", "rules"),
    [
        ('{"user": "odd"}', None),
        ('{"user": "odd", "publish": ["a/%u"]}', (Rule("a/%u", Access.WRITE),)),
        ('{"user": "odd", "subscribe": []}', ()),
    ],
)
def test_access_lists_of_the_answer_replace_the_access_file(
    url: str, answer: str, rules: tuple[Rule, ...] | None
) -> None:
    identity = asked(url, answer)
    assert identity == Identity("odd", "web-service", rules)


@pytest.mark.parametrize(
    "answer",
    ["", "[]", "{}", '{"user": 7}', '{"user": "odd", "publish": "a/#"}', '{"user": "odd", "subscribe": [7]}'],
)
def test_invalid_answer_refuses_the_login(url: str, answer: str) -> None:
    refusal = asked(url, answer)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.UNAVAILABLE


def test_invalid_options_are_refused() -> None:
    for options in ({}, {"url": "http://127.0.0.1", "colour": "red"}):
        with pytest.raises(ValueError, match="web-service takes url"):
            WebServiceLogin(options)


def test_metadata_names_the_plug_in_class() -> None:
    assert 'web-service = "web_service_login:WebServiceLogin"' in (FOLDER / "pyproject.toml").read_text()
