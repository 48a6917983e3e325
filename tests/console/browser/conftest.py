"""One browser, and one server with its console for all tests that only look. Tests that change a server start their
own."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.browser import (
    ARGUMENTS,
    Browsing,
    Console,
    Publisher,
    Server,
    chromium,
    log_in,
    publish_all,
)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Return the browser."""
    path = chromium()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra test")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="package")
def plant(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[tuple[Server, Console, Any]]:
    """Return a server with clients, its console and the state of a session."""
    store = tmp_path_factory.mktemp("plant") / "data"
    with Server(store) as server:
        publish_all(server.address, [message(n) for n in range(300)])
        with (
            Publisher(server.address, "press-flood", 40.0, "plant/hall-1/press-flood/t", value),
            Publisher(server.address, "press-calm", 2.0, "plant/hall-2/press-calm/t", value),
            Console(store) as console,
        ):
            yield server, console, log_in(browser, console)


def message(n: int) -> tuple[str, bytes]:
    """Return the topic and the payload of a message."""
    return f"plant/hall-{n % 3}/press-{n % 20:02}/temperature", value(n)


def value(n: int) -> bytes:
    """Return the payload of a message."""
    return json.dumps({"device": f"press-{n % 20:02}", "seq": n, "t": 20 + n % 7, "state": "ok"}).encode()


@pytest.fixture
def look(browser: Any, plant: tuple[Server, Console, Any]) -> Iterator[Browsing]:
    """Return a new context on the console of the plant; its faults fail the test."""
    _, console, state = plant
    found = Browsing(browser, console, state, viewport={"width": 1440, "height": 900})
    yield found
    found.close()
