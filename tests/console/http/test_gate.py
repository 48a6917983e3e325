from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.console.test_application import store
from tests.support.console_client import ORIGIN, Console
from timestone_console.application import Application
from timestone_console.config import Role
from timestone_console.http.gate import is_own_host
from timestone_console.http.sessions import Session

__all__ = ["store"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9465", "localhost:1", "LOCALHOST", "[::1]:9465", "[::1]", "127.9.9.9", "plant"],
)
def test_host_is_own(host: str) -> None:
    assert is_own_host([host.encode()], ("Plant",))


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "127.0.0.1.evil.test",
        "127.0.0.1@evil.test",
        "evil.test:127",
        "user@127.0.0.1",
        "127.0.0.1:80:80",
        "127.0.0.1:x",
        "[::1].evil.test",
        "[::1",
        "::1",
        "0x7f000001",
        "2130706433",
        "",
        "plant.evil.test",
        "192.0.2.1",
        "löcalhost",
    ],
)
def test_host_of_another_is_refused(host: str) -> None:
    assert not is_own_host([host.encode()], ("plant",))


def test_missing_or_doubled_host_is_refused() -> None:
    assert not is_own_host([], ()) and not is_own_host([b"localhost", b"localhost"], ())


def test_rebinding_host_gets_neither_pages_nor_figures(store: Path) -> None:
    with Console(store, login=False, anonymous=Role.READER) as console:
        for path in ("/", "/api/v1/overview"):
            assert console.http.get(path, headers={"Host": "evil.test"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_request_of_another_site_is_refused(store: Path, headers: dict[str, str]) -> None:
    with Console(store, login=False, anonymous=Role.READER) as console:
        assert console.http.get("/api/v1/overview", headers=headers).json()["type"].endswith("cross-site")
        found = console.http.post("/api/v1/login", json={"key": "x"}, headers=headers)
        assert found.json()["type"].endswith("cross-site")


def test_post_needs_the_token_of_its_session(store: Path) -> None:
    with Console(store) as console:
        own = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
        assert console.http.post("/api/v1/logout", json={}, headers=own).status_code == 403
        wrong = {**own, "X-Timestone-Token": "x" * 43}
        assert console.http.post("/api/v1/logout", json={}, headers=wrong).status_code == 403
        assert console.get("me")["role"] == "operator"
        assert console.post("logout", {})["role"] == "none"
        console.get("overview", 401)


def test_login_of_one_caller_gives_no_session_to_scripts_with_the_same_password(store: Path) -> None:
    with Console(store, login=False) as console:
        shared = Session("anna", Role.READER)
        console.sources.logged_in = lambda user, password, address: shared  # type: ignore[method-assign]
        console.application = Application(console.sources, console.config)
        script = TestClient(console.application, base_url=ORIGIN, headers={"Authorization": "Basic YW5uYTp4"})
        assert script.get("/api/v1/me").json()["role"] == "reader"
        found = script.post("/api/v1/login", json={"key": console.sessions.new_key()})
        assert (found.json()["role"], "set-cookie" in found.headers) == ("operator", True)
        script.cookies.clear()
        for path in ("/api/v1/me", "/api/v1/overview"):
            assert "set-cookie" not in script.get(path).headers
        assert "set-cookie" not in script.post("/api/v1/logout", json={}).headers
        assert script.get("/api/v1/me").json()["role"] == "reader"


@pytest.mark.slow
def test_session_may_make_a_bounded_number_of_requests(store: Path) -> None:
    with Console(store) as console:
        statuses = {console.http.get("/api/v1/me").status_code for _ in range(200)}
        assert statuses == {200, 429}


def test_long_url_is_refused(store: Path) -> None:
    with Console(store) as console:
        assert console.http.get("/api/v1/me?" + "x" * 9000).status_code == 414
