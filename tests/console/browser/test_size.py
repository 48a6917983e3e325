"""Pages of large stores: usable in less than a second on an idle machine, small on the wire, few elements. Times are
printed and never asserted; sizes and counts are."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import timestone
from tests.support.browser import Browsing, Console, Server, browsing, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

CLIENTS = int(os.environ.get("TIMESTONE_SCALE_CLIENTS", "1000"))
TOPICS = int(os.environ.get("TIMESTONE_SCALE_TOPICS", "20000"))


def connect_packet(client_id: str) -> bytes:
    """Return a CONNECT of MQTT 3.1.1 with a keep alive of zero."""
    name = client_id.encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
    assert len(body) < 128
    return b"\x10" + bytes([len(body)]) + body


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Browsing]:
    """Return the console of a server with many clients."""
    store = tmp_path_factory.mktemp("crowd") / "data"
    sockets = []
    with Server(store) as server:
        try:
            for number in range(CLIENTS):
                one = socket.create_connection(server.address, timeout=30)
                sockets.append(one)
                one.sendall(connect_packet(f"device-{number:05}"))
            for one in sockets:
                assert one.recv(4) == b"\x20\x02\x00\x00"
            with (
                Console(store) as console,
                browsing(browser, console, viewport={"width": 1440, "height": 900}) as look,
            ):
                yield look
        finally:
            for one in sockets:
                one.close()


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Browsing]:
    """Return the console of a stopped store with many topics."""
    store = tmp_path_factory.mktemp("forest") / "data"
    with timestone.open(store) as opened:
        log = opened.log("mqtt")
        for first in range(0, TOPICS, 1000):
            numbers = range(first, first + 1000)
            topics = [f"plant/hall-{n % 10}/line-{n // 10 % 100}/device-{n}" for n in numbers]
            log.append_many([b'{"t": %d}' % n for n in numbers], topics=topics)
    with (
        Console(store) as console,
        browsing(browser, console, viewport={"width": 1440, "height": 900}) as look,
    ):
        yield look


def measured(look: Browsing, path: str) -> dict[str, float]:
    """Open a page in a new tab without a cache; return its time, bytes and elements."""
    page = look.new_page()
    session = look.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    received = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(look.origin + path)
    look.settle(page)
    found = {
        "ms": page.evaluate("performance.now()"),
        "bytes": sum(received),
        "elements": page.evaluate("document.querySelectorAll('*').length"),
    }
    page.close()
    print(f"{path}: {found['ms']:.0f} ms, {found['bytes'] / 1e3:.0f} KB, {found['elements']} elements")
    return found


@pytest.mark.parametrize("path", ["/", "/clients", "/client?id=device-00500"])
def test_page_is_small_when_there_are_many_clients(crowd: Browsing, path: str) -> None:
    found = measured(crowd, path)
    assert found["bytes"] < 150_000
    assert found["elements"] < 2500


def test_client_is_found_among_many(crowd: Browsing) -> None:
    page = crowd.open("/clients")
    page.get_by_text(f"50 of {CLIENTS:,} clients").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("device-00777")
    until(page, "document.querySelectorAll('main tbody tr').length === 1")
    assert page.locator("main tbody tr").inner_text().startswith("device-00777")
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.get_by_role("button", name="Client").click()
    until(page, "document.querySelector('main tbody tr')?.innerText.startsWith('device-00000')")
    page.get_by_role("link", name="Next page").click()
    until(page, "document.querySelector('main tbody tr')?.innerText.startsWith('device-00050')")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topics?open=plant%0Aplant/hall-3%0Aplant/hall-3/line-7",
        "/topics?search=device-1234",
        "/records?log=mqtt",
        "/logs",
    ],
)
def test_page_is_small_when_there_are_many_topics(forest: Browsing, path: str) -> None:
    found = measured(forest, path)
    assert found["bytes"] < 150_000
    assert found["elements"] < 2500


def test_topic_is_found_among_many(forest: Browsing) -> None:
    page = forest.open("/topics")
    page.get_by_text(f"{TOPICS:,} topics").wait_for()
    page.get_by_role("button", name="Levels below plant").click()
    page.get_by_role("button", name="Levels below hall-0").wait_for()
    assert page.locator(".tree-row", has_text="hall-0").locator(".badge").inner_text() == f"{TOPICS // 10:,}"
    page.keyboard.press("/")
    page.keyboard.type("plant/+/line-7/#")

    until(page, f"document.querySelector('.table-foot')?.innerText.includes(' of {TOPICS // 100:,} topics')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Newest value").wait_for()


def test_stopped_store_says_so(forest: Browsing) -> None:
    page = forest.open("/")
    page.get_by_text("No server runs on this store.").wait_for()
