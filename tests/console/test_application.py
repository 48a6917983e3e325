import gzip
from pathlib import Path

import pytest

from tests.support.console_client import Console
from tests.support.stores import LOG, fill
from timestone_console.api.route import PREFIX
from timestone_console.api.routes import ROUTES
from timestone_console.config import Role


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "data"
    fill(path, 100)
    return path


@pytest.mark.parametrize(
    "path", ["/", "/clients", "/index.html", "/nope", f"{PREFIX}/nope", f"{PREFIX}/me", "/../x"]
)
def test_each_response_has_the_security_headers(store: Path, path: str) -> None:
    with Console(store, login=False) as console:
        found = console.http.get(path)
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["cross-origin-resource-policy"] == "same-origin"
        if path.startswith(PREFIX):
            assert found.headers["cache-control"] == "no-store"


def test_page_is_sent_compressed_and_not_again_while_it_is_the_same(store: Path) -> None:
    with Console(store, login=False) as console:
        found = console.http.get("/records?log=mqtt")
        assert found.headers["content-encoding"] == "gzip" and found.text.startswith("<!doctype html>")
        plain = console.http.get("/", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in plain.headers and plain.text == found.text
        again = console.http.get("/", headers={"If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert console.http.post("/").status_code == 405


@pytest.mark.parametrize(
    "spelling", ["/%2e%2e/pyproject.toml", "/..%2fconfig.py", "/web/../config.py", "/%69ndex.html"]
)
def test_static_file_has_one_spelling(store: Path, spelling: str) -> None:
    with Console(store, login=False) as console:
        assert console.http.get(spelling).status_code == 404


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_call_is_refused_without_its_role(store: Path, route: object) -> None:
    """Generated from the table of routes: none can be forgotten."""
    assert isinstance(route, type(ROUTES[0]))
    path = PREFIX + route.path.format(log=LOG, partition=0, offset=0)
    body: dict[str, str] | None = {} if route.method == "POST" else None
    for role in (Role.NONE, Role.FIGURES, Role.READER):
        if role >= route.role:
            continue
        with Console(store, login=False, anonymous=role) as console:
            found = console.http.request(route.method, path, json=body)
            assert found.status_code == (401 if role is Role.NONE or route.method == "POST" else 403), (
                found.text
            )
            assert found.headers["content-type"] == "application/problem+json"
            assert "record" not in found.text


def test_long_reply_is_compressed_for_a_client_that_takes_it(store: Path) -> None:
    with Console(store) as console:
        long = console.http.get(f"{PREFIX}/records", params={"log": LOG})
        assert long.headers["content-encoding"] == "gzip" and len(long.json()["records"]) == 100
        short = console.http.get(f"{PREFIX}/me")
        assert "content-encoding" not in short.headers
        assert gzip.decompress(gzip.compress(short.content)) == short.content


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("records?log=telemetry&nonsense=1", 400, "invalid-request"),
        ("records?log=telemetry&limit=1&limit=2", 400, "invalid-request"),
        ("records?log=telemetry&limit=501", 400, "invalid-request"),
        ("records?log=..%2f..%2fetc", 404, "not-found"),
        ("records?log=telemetry&from=tomorrow", 400, "invalid-request"),
        ("records?log=telemetry&filter=a%23b", 400, "invalid-request"),
        ("records?log=telemetry&value=1", 400, "invalid-request"),
        ("logs/nope", 404, "not-found"),
        ("records/telemetry/0/100", 404, "not-found"),
        ("records/telemetry/x/1", 400, "invalid-request"),
        ("clients", 503, "no-server"),
        ("pipeline", 404, "not-found"),
    ],
)
def test_failure_is_a_problem_with_a_stable_type(store: Path, path: str, status: int, kind: str) -> None:
    with Console(store) as console:
        found = console.http.get(f"{PREFIX}/{path}")
        assert (found.status_code, found.json()["type"]) == (status, f"urn:timestone:problem:{kind}"), (
            found.text
        )
        assert found.headers["content-type"] == "application/problem+json"


def test_wrong_method_names_those_of_the_path(store: Path) -> None:
    with Console(store) as console:
        found = console.http.put(f"{PREFIX}/me", headers={"X-Timestone-Token": console.token})
        assert (found.status_code, found.json()["status"]) == (405, 405)


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [(b"{", "application/json", 400), (b"[]", "application/json", 400), (b"{}", "text/plain", 415)],
)
def test_body_that_is_not_json_is_refused(store: Path, content: bytes, media_type: str, status: int) -> None:
    with Console(store, login=False) as console:
        found = console.http.post(f"{PREFIX}/login", content=content, headers={"Content-Type": media_type})
        assert found.status_code == status, found.text


def test_body_above_the_limit_is_refused(store: Path) -> None:
    with Console(store, login=False) as console:
        found = console.http.post(f"{PREFIX}/login", json={"key": "x" * (64 << 10)})
        assert found.status_code == 413


def test_a_wrong_method_is_answered_with_all_methods_of_the_path(store: Path) -> None:
    with Console(store) as console:
        for path, methods in (("actions", "GET, HEAD, POST"), ("logs", "GET, HEAD"), ("login", "POST")):
            found = console.http.request("DELETE", f"{PREFIX}/{path}")
            assert (found.status_code, found.headers["allow"]) == (405, methods)
