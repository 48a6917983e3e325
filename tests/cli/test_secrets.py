"""Secrets planted wherever a server can have one: none is in anything that it prints, logs, records, answers or shows
of its process."""

import base64
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.support.certificates import Authority
from tests.support.mqtt_clients import RawClient
from timestone_console.api.routes import ROUTES

PASSWORD, WRONG = "Kestrel-password-7319", "Kestrel-wrong-7319"
SIGNING_KEY = b"Kestrel-signing-key-7319-0123456789abcdef"
CLOUD = {"AWS_ACCESS_KEY_ID": "KestrelAccess7319", "AWS_SECRET_ACCESS_KEY": "Kestrel-cloud-7319"}
URL_PASSWORD = "Kestrel-url-7319"
HTTP = "http:" + "//"
SETTINGS = """\
console.users = { anna = "operator" }
[mqtt]
password_file = "passwords"
[mqtt.jwt]
keys = ["signing.key"]
[[mqtt.listeners]]
address = "127.0.0.1:0"
certificate = "server.pem"
key = "server.key"
"""


def token() -> str:
    return jwt.encode({"sub": "anna", "exp": int(time.time()) + 600}, SIGNING_KEY, "HS256")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted")
    assert command("passwd", "passwords", "anna", stdin=PASSWORD.encode() + b"\n", cwd=path).returncode == 0
    (path / "signing.key").write_bytes(SIGNING_KEY)
    Authority(path).issue_server()  # writes server.pem and server.key
    (path / "settings.toml").write_text(SETTINGS)
    for name in ("signing.key", "server.key"):
        (path / name).chmod(0o600)
    return path


def secrets_of(folder: Path, *more: str) -> list[str]:
    """Return all that must not appear, in each form that it has somewhere."""
    hashed = (folder / "passwords").read_text().strip().partition(":")[2]
    key = (folder / "server.key").read_text().splitlines()[1]
    plain = [PASSWORD, WRONG, SIGNING_KEY.decode(), *CLOUD.values(), URL_PASSWORD, *more]
    encoded = [base64.b64encode(f"anna:{one}".encode()).decode() for one in (PASSWORD, WRONG)]
    return [*plain, *encoded, hashed, key]


def found_in(outputs: dict[str, str], secrets: list[str]) -> list[tuple[str, str]]:
    return [(where, one) for where, text in outputs.items() for one in secrets if one in text]


def answers(address: str, authorization: str | None) -> Iterator[tuple[str, str]]:
    """Yield the replies of all calls of the API, also those that are errors; of the stream the first bytes."""
    for route in ROUTES:
        path = route.path.replace("{log}", "mqtt").replace("{partition}", "0").replace("{offset}", "0")
        query = "?log=mqtt&topic=t&id=device&name=x" if "{" not in route.path else ""
        for end in (query, ""):
            request = urllib.request.Request(f"http://{address}/api/v1{path}{end}", method=route.method)
            if authorization is not None:
                request.add_header("Authorization", authorization)
            if route.method == "POST":
                request.add_header("Content-Type", "application/json")
                request.data = json.dumps({"user": "anna", "password": WRONG, "key": WRONG}).encode()
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    content = reply.read(2000 if route.kind == "stream" else -1)
                    yield f"{route.method} {path}{end}", f"{reply.headers}{content.decode('latin-1')}"
            except urllib.error.HTTPError as error:
                with error:
                    yield f"{route.method} {path}{end}", f"{error.headers}{error.read().decode('latin-1')}"


def shown_of_processes(pid: int) -> Iterator[tuple[str, str]]:
    """Yield what everybody may see of a server and its children."""
    pids = [str(pid)]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        pids += children.read_text().split()
    assert len(pids) > 1, "the console should run"
    for one in pids:
        for name in ("cmdline", "comm", "status"):
            with contextlib.suppress(FileNotFoundError):
                yield f"{name} of {one}", Path(f"/proc/{one}/{name}").read_bytes().decode("latin-1")


def visit(ready: dict[str, Any]) -> dict[str, str]:
    """Log in in each way, rightly and wrongly, and return what the server shows of it."""
    outputs = {"ready file": json.dumps(ready)}
    host, _, port = ready["fronts"]["mqtt"]["address"].rpartition(":")
    with contextlib.ExitStack() as stack:
        for number, secret in enumerate((PASSWORD, token())):
            client = stack.enter_context(RawClient((host, int(port)), 5))
            client.connect(f"device-{number}", user="anna", password=secret.encode())
            client.publish("t", b"x", packet_id=1)
        with RawClient((host, int(port)), 5) as refused:
            outputs["CONNACK"] = repr(refused.connect("refused", user="anna", password=WRONG.encode()))
        basic = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
        wrong = base64.b64encode(f"anna:{WRONG}".encode()).decode()
        for authorization in (f"Basic {basic}", f"Basic {wrong}", f"Bearer {token()}", None):
            for where, text in answers(ready["console"], authorization):
                outputs[f"{where} as {str(authorization)[:7]} {len(outputs)}"] = text
        for page in ("/metrics", "/health/live", "/health/ready"):
            with urllib.request.urlopen(f"http://{ready['metrics']}{page}", timeout=60) as reply:
                outputs[page] = reply.read().decode()
        for words in (["clients"], ["top", "--interval", "100ms"], ["inspect"], ["readers"], ["metrics"]):
            done = command(*words, "data", "--json", cwd=Path(ready["data"]).parent)
            outputs[" ".join(words)] = done.stdout + done.stderr
        outputs |= dict(shown_of_processes(ready["pid"]))
    return outputs


@pytest.mark.slow
def test_nothing_that_a_server_shows_has_a_secret_in_it(folder: Path) -> None:
    bucket = folder / "bucket"
    bucket.mkdir()
    words = (
        "serve", "--data", "data", "--mqtt", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--console", "127.0.0.1:0",
        "--config", "settings.toml", "--ready-file", "ready.json", "--log-level", "debug", "--log-format", "json",
        "--metrics-interval-ms", "100", "--mqtt-traces-per-s", "100", "--tier", f"file://{bucket}",
    )  # fmt: skip
    with Running(*words, cwd=folder, environment=CLOUD) as server:
        ready = server.wait_for_json(folder / "ready.json")
        outputs = visit(ready)
        code, outputs["standard output"], outputs["standard error"] = server.stop()
    assert code == 0
    assert "refused" in outputs["standard error"] and '"publishes_received"' in outputs["clients"]
    with timestone.view(folder / "data") as view:
        for log, partition in view.log_names(server=True):
            if log.startswith("timestone."):
                payloads = [record.payload.decode() for record in view.log(log, partition).read(0)]
                assert payloads
                outputs[log] = "\n".join(payloads)
    for path in bucket.rglob("*"):
        if path.is_file():
            outputs[str(path)] = path.read_bytes().decode("latin-1")
    catalogue = [path for path in (folder / "data").rglob("*") if path.is_file()]
    outputs |= {str(path): path.read_bytes().decode("latin-1") for path in catalogue}
    assert found_in(outputs, secrets_of(folder, token().rpartition(".")[2])) == []
    assert found_in({"planted": PASSWORD}, secrets_of(folder))  # the search itself finds one


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["--tier", f"ftp://user:{URL_PASSWORD}@host/bucket"], {}),
        (["--tier", f"file://user:{URL_PASSWORD}@host/bucket"], {}),
        (["--tier", f"s3://user:{URL_PASSWORD}@bucket"], {}),
        (["--tier", f"s3://bucket?password={URL_PASSWORD}"], {}),
        (["--tier", "s3://b", "--tier-endpoint", f"{HTTP}user:{URL_PASSWORD}@host"], {}),
        (["--tier", f"abfss://box:{URL_PASSWORD}@"], {}),
        (["--mqtt-password-file", "bad"], {"bad": f"anna:{PASSWORD}\n"}),
        (["--mqtt-password-file", "bad"], {"bad": f"{PASSWORD}\n"}),
        (["--mqtt-jwt-keys", "bad"], {"bad": "Kestrel-wrong-7319"}),
        (["--mqtt-jwt-keys", "bad"], {"bad": f"-----BEGIN PUBLIC KEY-----\n{PASSWORD}\n"}),
        (["--config", "bad"], {"bad": f'[mqtt]\npassword = "{PASSWORD}"\n'}),
        (["--config", "bad"], {"bad": f'[mqtt]\npassword_file = "x\n{PASSWORD}'}),
    ],
)
def test_error_at_the_start_has_no_secret_in_it(
    tmp_path: Path, words: list[str], files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    done = command(
        "serve", "--data", "data", "--mqtt", "127.0.0.1:0", *words, cwd=tmp_path, environment=CLOUD
    )
    assert done.returncode != 0 and done.stderr
    planted = [PASSWORD, WRONG, URL_PASSWORD, *CLOUD.values()]
    assert found_in({"output": done.stdout + done.stderr}, planted) == []
