import asyncio
import base64

import pytest

from timestone_console.config import Role
from timestone_console.http.authorization import Authorization
from timestone_console.http.sessions import Session
from timestone_console.problems import Problem


def test_password_is_checked_once_for_a_while() -> None:
    asked = []

    def logged_in(user: str, password: str, address: str) -> Session:
        asked.append((user, password, address))
        return Session(user, Role.READER)

    header = "Basic " + base64.b64encode("änna:s:ecret".encode()).decode()

    async def twice() -> tuple[Session, Session]:
        checked = Authorization(logged_in)
        return await checked.session(header, "::1"), await checked.session(header, "::1")

    first, second = asyncio.run(twice())
    assert first is second and asked == [("änna", "s:ecret", "::1")]


@pytest.mark.parametrize(
    "header", ["Bearer x", "Basic", "Basic !!!", "Basic " + base64.b64encode(b"x").decode()]
)
def test_invalid_header_is_refused_without_asking(header: str) -> None:
    def never(*words: str) -> Session:
        raise AssertionError(words)

    with pytest.raises(Problem, match="Authorization"):
        asyncio.run(Authorization(never).session(header, ""))
