"""Pages of large stores: usable in less than a second on an idle machine, small on the wire, few elements. Times are
printed and never asserted; sizes and counts are."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.sessions.session_store import SPACE
from tests.support.browser import Browsing, Console, Server, browsing, until
from tests.support.stored_session import NEVER_S, stored_session
from tests.support.waiting import wait_for
from timestone.config import LogConfig

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

CLIENTS = int(os.environ.get("TIMESTONE_SCALE_CLIENTS", "1000"))
TOPICS = int(os.environ.get("TIMESTONE_SCALE_TOPICS", "20000"))
LOGS = int(os.environ.get("TIMESTONE_SCALE_LOGS", "200"))
SESSIONS = int(os.environ.get("TIMESTONE_SCALE_SESSIONS", "5000"))
SEGMENTS = int(os.environ.get("TIMESTONE_SCALE_SEGMENTS", "500"))
DEEP = "/".join("x" for _ in range(128))
LONG = "t" * 4096


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
        opened.log("large").append(
            b"v" * (1 << 20), topic=DEEP, headers=[(f"h{n}", b"x" * 900) for n in range(60)]
        )
        opened.log("large").append(b"small", topic=LONG)
        small = opened.log("segments", config=LogConfig(segment_entries=1))
        for number in range(SEGMENTS):
            small.append(b"%d" % number, ack="written")
        for first in range(0, SESSIONS, 20_000):
            numbers = range(first, min(first + 20_000, SESSIONS))
            sessions = {f"device-{n:07}": stored_session(NEVER_S, 1 + n / 1e6) for n in numbers}
            opened.documents.put_many(SPACE, sessions)
        for number in range(LOGS):
            opened.log(f"log-{number:05}")
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
        "/clients?trouble=away",
        "/clients?trouble=away&search=001234",
        "/client?id=device-0001234",
        "/records?log=mqtt",
        "/logs",
        "/log?log=segments",
        "/records?log=large&from=0&order=oldest&at=0",
        "/topic?log=large&topic=" + LONG,
    ],
)
def test_page_is_small_when_there_is_much_of_all(forest: Browsing, path: str) -> None:
    found = measured(forest, path)
    assert found["bytes"] < 150_000
    assert found["elements"] < 2500


def test_topic_is_found_among_many(forest: Browsing) -> None:
    page = forest.open("/topics")
    page.get_by_text(f"{TOPICS:,} topics").wait_for()
    page.get_by_role("button", name="Levels below plant").click()
    page.get_by_role("button", name="Levels below hall-0").wait_for()
    page.locator(".tree-row", has_text="hall-0").locator(".badge", has_text=f"{TOPICS // 10:,}").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("plant/+/line-7/#")

    until(page, f"document.querySelector('.table-foot')?.innerText.includes(' of {TOPICS // 100:,} topics')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Newest value").wait_for()


def test_session_is_found_among_many(forest: Browsing) -> None:
    forest.faults.allow("status 503", "status of 503")  # no server runs
    page = forest.open("/clients")
    page.get_by_role("link", name="Away").click()
    until(page, "document.querySelectorAll('main tbody tr').length === 50")
    page.get_by_role("link", name="Next page").click()
    until(page, "document.querySelector('main tbody tr')?.innerText.startsWith('device-0000050')")
    page.keyboard.press("/")
    page.keyboard.type("0001234")
    until(page, "document.querySelectorAll('main tbody tr').length === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Its session waits for it").wait_for()
    assert page.get_by_role("row", name="a/#").locator("td").nth(1).inner_text() == "mqtt-0"


def test_names_and_values_at_their_limits_are_shown(forest: Browsing) -> None:
    page = forest.open("/records?log=large&from=0&order=oldest&at=0")
    page.get_by_text("Only the beginning is shown.").wait_for()
    detail = page.get_by_role("complementary")
    detail.locator("dt", has_text="h59").wait_for()
    assert detail.locator("dd a").first.inner_text() == DEEP
    for width in (360, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        until(page, f"document.documentElement.scrollWidth <= {width}")
    page = forest.open(f"/topic?log=large&topic={LONG}")
    page.locator("main .value", has_text="small").first.wait_for()
    until(page, "document.documentElement.scrollWidth <= 1440")


def test_each_of_many_logs_and_segments_is_found(forest: Browsing) -> None:
    page = forest.open("/logs")
    page.keyboard.press("/")
    page.keyboard.type(f"log-{LOGS - 1:05}")
    until(page, "document.querySelectorAll('main tbody tr').length === 1")
    page = forest.open(f"/log?log=segments&segment={SEGMENTS // 2}")
    page.get_by_role("link", name=f"{SEGMENTS // 2:,} – {SEGMENTS // 2 + 1:,}", exact=True).wait_for()


def test_tail_of_a_flood_answers_and_counts_what_it_leaves_out(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    ended = threading.Event()
    with timestone.open(store) as opened:
        log = opened.log("mqtt")
        log.append(b"first")

        def flood() -> None:
            while not ended.is_set():
                log.append_many([b"x" * 100] * 5000, topics=["flood"] * 5000, ack="written")
                ended.wait(0.02)

        with Console(store) as console, browsing(browser, console) as look:
            page = look.open("/records?log=mqtt&live=1")
            page.locator(".state", has_text="Live").wait_for()
            before = resident_bytes(console.pid)
            thread = threading.Thread(target=flood)
            thread.start()
            try:
                page.get_by_text("left out").wait_for()
                # The page has as many rows as it keeps: the largest that it becomes.
                until(page, "document.querySelectorAll('main tbody tr').length === 150")
                page.get_by_role("button", name="Pause").click()
                page.get_by_text("waiting").wait_for()
                assert page.evaluate("document.querySelectorAll('*').length") < 2500
                at = log.end_offset
                wait_for(lambda: log.end_offset > at + 200_000)
                page.get_by_role("button", name="Resume").click()
                assert resident_bytes(console.pid) - before < 100 << 20
            finally:
                ended.set()
                thread.join()
            # The newest record arrives, however many were left out before it.
            newest = f"{log.end_offset - 1:,}"
            until(page, f"document.querySelector('main tbody th')?.innerText === '{newest}'")


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_stopped_store_says_so(forest: Browsing) -> None:
    page = forest.open("/")
    page.get_by_text("No server runs on this store.").wait_for()
