import asyncio
import base64
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flight_front.calls import Calls, certificate_user, read_access
from flight_front.errors import CallRefused, Code
from flight_front.settings import FlightSettings
from tests.support.signing_keys import jwk, token, write_key_set
from timestone_access.passwords.password_file import set_password
from timestone_access.rights import ALL_RIGHTS, Right
from timestone_access.settings import JwtSettings, LockoutSettings

LOG = logging.getLogger("timestone.flight")


class Context:
    """What a call brings."""

    def __init__(
        self, authorization: str | None = None, certificate: Mapping[str, list[bytes]] | None = None
    ):
        self._authorization = authorization
        self._certificate = certificate or {}

    def peer(self) -> str:
        return "ipv6:%5B2001:db8::1%5D:4711"

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return self._certificate

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [] if self._authorization is None else [("authorization", self._authorization)]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    set_password(tmp_path / "passwords", "alice", b"secret")
    (tmp_path / "acl").write_text("user alice\nlog read t*\ngroup g\n")
    return {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}


def calls(executor: ThreadPoolExecutor, **settings: Any) -> Calls:
    made = FlightSettings(**settings)
    return Calls(made, read_access(made, LOG), executor, LOG)


def code_of(door: Calls, context: Context) -> Code | None:
    """Return with which status a call is refused; None if it is let in."""

    async def enter() -> None:
        async with door.admit(context, "DoGet"):
            pass

    try:
        asyncio.run(enter())
    except CallRefused as refused:
        return refused.code
    return None


def test_everything_is_allowed_when_no_login_is_configured(executor: ThreadPoolExecutor) -> None:
    async def rights() -> object:
        async with calls(executor).admit(Context(), "DoGet") as call:
            return call.rights

    assert asyncio.run(rights()) is ALL_RIGHTS


def test_rights_are_those_of_the_file_when_there_are_logins(
    executor: ThreadPoolExecutor, files: dict[str, Any]
) -> None:
    async def enter() -> None:
        async with calls(executor, **files).admit(Context(basic("alice", "secret")), "DoGet") as call:
            call.check(Right.READ, "telemetry")
            call.check_group("g")
            with pytest.raises(CallRefused, match="has no right to write log 'telemetry'") as refused:
                call.check(Right.WRITE, "telemetry")
            assert refused.value.code is Code.PERMISSION_DENIED
            with pytest.raises(CallRefused, match="may not commit as reader 'other'"):
                call.check_group("other")

    asyncio.run(enter())


@pytest.mark.parametrize(
    "authorization",
    [None, basic("alice", "wrong"), basic("bob", "secret"), "Bearer x", "Basic !", "Digest x", ""],
)
def test_call_without_a_valid_login_is_refused(
    executor: ThreadPoolExecutor, files: dict[str, Any], authorization: str | None
) -> None:
    door = calls(executor, **files)
    assert code_of(door, Context(authorization)) is Code.UNAUTHENTICATED
    assert door.open_count == 0


def test_user_is_locked_out_after_failed_logins(executor: ThreadPoolExecutor, files: dict[str, Any]) -> None:
    door = calls(executor, **files, lockout=LockoutSettings(failures=2))
    for _ in range(2):
        code_of(door, Context(basic("alice", "wrong")))
    assert code_of(door, Context(basic("alice", "secret"))) is Code.UNAUTHENTICATED
    assert door.logins.locked_out == 1


def test_token_of_a_login_admits_until_a_reload_takes_the_user_back(
    executor: ThreadPoolExecutor, files: dict[str, Any]
) -> None:
    door = calls(executor, **files)

    async def token() -> str:
        async with door.admit(Context(basic("alice", "secret")), "Handshake") as call:
            return door.token(call.identity)

    bearer = Context(f"Bearer {asyncio.run(token())}")
    assert code_of(door, bearer) is None
    set_password(files["password_file"], "alice", b"changed")
    door.use(read_access(FlightSettings(**files), LOG))
    assert code_of(door, bearer) is Code.UNAUTHENTICATED


def test_token_of_a_login_is_refused_after_its_time(
    executor: ThreadPoolExecutor, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    door = calls(executor, **files, login_ms=60_000)

    async def made(by: Context) -> Context:
        async with door.admit(by, "Handshake") as call:
            return Context(f"Bearer {door.token(call.identity)}")

    now_s, first = time.time(), asyncio.run(made(Context(basic("alice", "secret"))))
    monkeypatch.setattr("flight_front.calls.time.time", lambda: now_s + 30)
    second = asyncio.run(made(first))  # a token makes no token that lives longer
    assert (code_of(door, first), code_of(door, second)) == (None, None)
    monkeypatch.setattr("flight_front.calls.time.time", lambda: now_s + 61)
    for bearer in (first, second):
        assert code_of(door, bearer) is Code.UNAUTHENTICATED


def test_token_is_refused_when_it_has_expired(executor: ThreadPoolExecutor, files: dict[str, Any]) -> None:
    key_set = write_key_set(files["password_file"].parent / "jwks", jwk("ES256", kid="k"))
    door = calls(executor, **files, jwt=JwtSettings(jwks=key_set, leeway_ms=0))
    for seconds, code in ((60, None), (-60, Code.UNAUTHENTICATED)):
        signed = token("ES256", key_id="k", exp=int(time.time()) + seconds).decode()
        assert code_of(door, Context(f"Bearer {signed}")) is code


def test_calls_over_a_limit_are_refused_and_counted(executor: ThreadPoolExecutor) -> None:
    async def enter_twice(door: Calls) -> None:
        async with door.admit(Context(), "DoGet"), door.admit(Context(), "DoGet"):
            pass

    for settings in ({"stream_count": 1}, {"user_stream_count": 1}):
        door = calls(executor, **settings)
        with pytest.raises(CallRefused) as refused:
            asyncio.run(enter_twice(door))
        assert refused.value.code is Code.RESOURCE_EXHAUSTED
        assert dict(door.counts.limited) == {next(iter(settings)): 1}
        assert door.open_count == 0
    door = calls(executor, calls_per_s=1)
    assert [code_of(door, Context()) for _ in range(12)].count(Code.RESOURCE_EXHAUSTED) >= 1


def test_user_of_a_certificate_is_its_only_name() -> None:
    named = {"x509_common_name": [b"dev"], "x509_subject_alternative_name": [b"a.example", b"b.example"]}
    assert certificate_user(named, "login") is None
    assert certificate_user(named, "cn") == "dev"
    assert certificate_user(named, "san") == "a.example"
    assert certificate_user({"x509_common_name": [b"a", b"b"]}, "cn") is None
    assert certificate_user({"x509_common_name": [b"a\n"]}, "cn") is None
    assert certificate_user({}, "san") is None


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing: No such file"):
        read_access(FlightSettings(acl_file=tmp_path / "missing"), LOG)


def test_waiting_events_are_set_when_the_server_stops(executor: ThreadPoolExecutor) -> None:
    door, event = calls(executor), asyncio.Event()
    with door.woken_at_stop(event):
        door.stop()
    assert event.is_set()
    with pytest.raises(CallRefused, match="the server stops"):
        door.check_running()
