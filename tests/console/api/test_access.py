from pathlib import Path

import pytest

from tests.support.console_client import Console
from tests.support.stores import fill
from timestone_console.config import Role


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "data", 1)
    return tmp_path / "data"


def test_key_gives_a_session_once_and_a_cookie_that_scripts_cannot_read(store: Path) -> None:
    with Console(store, login=False) as console:
        assert console.get("me")["role"] == "none"
        key = console.sessions.new_key()
        found = console.http.post("/api/v1/login", json={"key": key})
        cookie = found.headers["set-cookie"]
        assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and "timestone_9465=" in cookie
        assert console.get("me") == found.json() and found.json()["role"] == "operator"
        again = console.http.post("/api/v1/login", json={"key": key})
        assert again.status_code == 401 and "set-cookie" not in again.headers


def test_login_starts_a_new_session_and_logout_ends_it_in_the_console(store: Path) -> None:
    with Console(store) as console:
        first = dict(console.http.cookies)
        console.http.post("/api/v1/login", json={"key": console.sessions.new_key()})
        second = dict(console.http.cookies)
        assert first != second
        console.token = console.get("me")["token"]
        console.post("logout", {})
        console.http.cookies.update(second)
        assert console.get("me")["role"] == "none"


@pytest.mark.parametrize("body", [{}, {"user": "anna"}, {"key": "wrong"}, {"user": "anna", "password": "x"}])
def test_wrong_login_gets_nothing(store: Path, body: dict[str, str]) -> None:
    with Console(store, login=False, users={"anna": Role.READER}) as console:
        found = console.http.post("/api/v1/login", json=body)
        assert found.status_code in (400, 401, 503) and "set-cookie" not in found.headers


def test_about_has_settings_without_secrets(store: Path) -> None:
    with Console(
        store, certificate="/secret/cert", key="/secret/key", users={"anna": Role.READER}
    ) as console:
        # The cookie is for TLS only now, and the test has none.
        console.http.base_url = "https://127.0.0.1:9465"
        found = console.http.get("https://127.0.0.1:9465/api/v1/about")
        assert "secret" not in found.text


def test_about_names_what_is_in_use(store: Path) -> None:
    with Console(store) as console:
        found = console.get("about")
        assert {one["name"] for one in found["licences"]} == {"starlette", "uvicorn", "h11", "msgspec"}
        assert all(one["version"] and one["licence"] for one in found["licences"])
