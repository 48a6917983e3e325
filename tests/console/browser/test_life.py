"""Pages that stay open while the server stops, is killed and comes back, and while the console ends."""

from pathlib import Path
from typing import Any

import pytest

from tests.console.browser.conftest import value
from tests.support.browser import Console, Server, browsing, publish_all, until
from tests.support.waiting import wait_for
from timestone.view import view_store

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]


def rows(page: Any) -> list[str]:
    """Return the offsets that a page of records shows."""
    found: list[str] = page.locator("main tbody tr th").all_inner_texts()
    return found


def test_page_goes_on_when_the_server_restarts(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with Server(store) as server:
        publish_all(server.address, [("a/b", value(n)) for n in range(3)])
        console = Console(store)
        with console, browsing(browser, console) as look:
            page = look.open("/records?log=mqtt&live=1")
            page.locator(".state", has_text="Live").wait_for()
            publish_all(server.address, [("a/b", value(n)) for n in range(3)])
            until(page, "document.querySelectorAll('main tbody tr').length === 3")
            server.kill()
            page.get_by_text("No server runs on this store.").wait_for()
            assert rows(page) == ["5", "4", "3"]
            with Server(store) as again:
                page.get_by_text("No server runs on this store.").wait_for(state="detached")
                publish_all(again.address, [("a/b", value(n)) for n in range(2)])
                until(page, "document.querySelectorAll('main tbody tr').length === 5")
                assert rows(page) == ["7", "6", "5", "4", "3"]


def test_history_stays_when_no_server_runs(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with Server(store) as server:
        publish_all(server.address, [("a/b", value(n)) for n in range(100)])
        with view_store(store) as view:
            wait_for(lambda: view.log("timestone.metrics").refresh() > 3)
        server.stop()
    with Console(store) as console, browsing(browser, console) as look:
        look.faults.allow("status 503", "status of 503")
        page = look.open("/")
        page.get_by_text("No server runs on this store.").wait_for()
        page.locator("figure.chart", has_text="Messages a second").get_by_text("highest").wait_for()
        page = look.open("/clients")
        page.get_by_text("No server runs on this store").first.wait_for()
        page = look.open("/alerts?view=events")
        page.get_by_text("100 publishes in").wait_for()
        page = look.open("/log?log=mqtt")
        assert page.locator(".map a").count() == 1


def test_page_says_that_the_console_has_ended(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with Server(store) as server:
        publish_all(server.address, [("a/b", value(n)) for n in range(10)])
        with Console(store) as console, browsing(browser, console) as look:
            page = look.open("/logs")
            look.faults.allow("failed:", "net::ERR_")
            console.end()
            page.get_by_text("The console does not answer.").wait_for()
            assert page.locator("tbody tr", has_text="mqtt-0").count() == 1, "what was known stays"
