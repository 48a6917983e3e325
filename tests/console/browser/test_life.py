"""Pages that stay open while the server stops, is killed and comes back, and while the console ends."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import timestone
from tests.cli.processes import Running
from tests.cli.processes import timestone as command
from tests.cli.server.test_console import children
from tests.console.browser.conftest import value
from tests.support.browser import Browsing, Console, Server, browsing, publish_all, until
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for
from timestone.config import LogConfig
from timestone.repair.inspection import inspect_store
from timestone.view import view_store

WORDS = (
    "--data", "data", "--mqtt", "127.0.0.1:0", "--console", "127.0.0.1:0", "--ready-file", "ready.json",
)  # fmt: skip

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


def test_history_stays_when_the_server_was_killed(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with Server(store) as server:
        publish_all(server.address, [("a/b", value(n)) for n in range(100)])
        with view_store(store) as view:
            wait_for(lambda: view.log("timestone.metrics").refresh() > 3)
        server.kill()
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
        until(page, "document.querySelectorAll('.map a').length === 1")
        (segment,) = inspect_store(store, log="mqtt-0").logs[0].segments
        assert segment.state == "unclosed"
        page.get_by_text("not closed: its owner was killed").first.wait_for()


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


def test_page_recovers_when_the_console_of_a_server_is_killed(tmp_path: Path, browser: Any) -> None:
    with Running("serve", *WORDS, cwd=tmp_path) as running:
        ready = running.wait_for_json(tmp_path / "ready.json")
        host, _, port = ready["fronts"]["mqtt"]["address"].rpartition(":")
        with PahoClient("stays", level=5) as client:
            assert client.connect((host, int(port))) == 0
            look = Browsing(browser, OfServer(f"http://{ready['console']}"), None)
            page = look.open("/clients")
            page.locator("tbody tr", has_text="stays").wait_for()
            (console,) = children(running.process.pid)
            look.faults.allow("failed:", "net::ERR_", "status 503")
            os.kill(console, signal.SIGKILL)
            wait_for(lambda: children(running.process.pid) not in ([], [console]))
            page.get_by_text("The console does not answer.").wait_for(state="detached")
            page.locator(".state", has_text="Server running").wait_for()
            page.locator("tbody tr", has_text="stays").wait_for()
            assert not client.disconnected.is_set()
            look.close()


class OfServer(NamedTuple):
    """Console of a server."""

    origin: str


def test_damaged_empty_and_copied_stores_are_shown(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with timestone.open(store) as opened:
        log = opened.log("mqtt", config=LogConfig(segment_entries=10))
        for number in range(40):
            log.append(value(number), topic="a/b")
        opened.log("empty")
        shutil.copytree(store, tmp_path / "copy")
    first, *_, last = sorted((tmp_path / "copy" / "mqtt-0").glob("*.segment"))
    with first.open("r+b") as file:
        file.seek(first.stat().st_size // 2)
        file.write(b"\xff" * 16)
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)
    with Console(tmp_path / "copy") as console, browsing(browser, console) as look:
        page = look.open("/")
        wrong = page.get_by_role("listitem").filter(has_text="mqtt-0: 1 segment damaged")
        wrong.get_by_role("link", name="its segments").click()
        page.get_by_role("alert").first.wait_for()
        page = look.open("/records?log=mqtt&order=oldest&from=0")
        page.locator("tbody tr .state", has_text="damaged").first.wait_for()
        page = look.open("/records?log=empty")
        page.get_by_text("The log is empty").wait_for()
        page = look.open("/log?log=empty")
        page.get_by_role("heading", level=1, name="empty-0").wait_for()
    with Console(store) as console, browsing(browser, console) as look:
        page = look.open("/records?log=mqtt&order=newest")
        until(page, "document.querySelector('main tbody th')?.innerText === '39'")


def test_page_goes_on_when_retention_deletes_what_it_shows(tmp_path: Path, browser: Any) -> None:
    store = tmp_path / "data"
    with timestone.open(store) as opened:
        log = opened.log("other", config=LogConfig(segment_entries=10))
        for number in range(35):
            log.append(value(number), topic="a/b")
        with Console(store) as console, browsing(browser, console) as look:
            look.faults.allow("status 410", "status of 410", "status 404", "status of 404")
            page = look.open("/records?log=other&order=oldest&from=0&at=3")
            page.get_by_role("heading", name="Record 3").wait_for()
            log.configure(retention_bytes=1)
            log.apply_retention()
            first = log.start_offset
            assert first >= 10
            page.get_by_role("link", name="Record after").click()
            page.get_by_role("complementary").get_by_text(f"the log holds [{first}, 35)").wait_for()
            page = look.open("/records?log=other&order=oldest&from=0")
            assert rows(page)[0] == str(first)
            page.locator("main tbody a").first.click()
            page.get_by_role("complementary").get_by_role("link", name="a/b").click()
            page.get_by_role("heading", name="Newest value").wait_for()
            page = look.open("/log?log=other")
            page.get_by_text(f"{first} – 35").first.wait_for()


def test_login_is_asked_for_and_leads_back_to_the_page(tmp_path: Path, browser: Any) -> None:
    assert command("passwd", "passwords", "anna", stdin=b"secret\n", cwd=tmp_path).returncode == 0
    (tmp_path / "settings.toml").write_text(
        'console.users = { anna = "reader" }\n[mqtt]\npassword_file = "passwords"\n'
    )
    with Running("serve", *WORDS, "--config", "settings.toml", cwd=tmp_path) as running:
        ready = running.wait_for_json(tmp_path / "ready.json")
        look = Browsing(browser, OfServer(f"http://{ready['console']}"), None)
        look.faults.allow("status 401", "status of 401")
        page = look.page
        page.goto(f"{look.origin}/logs?server=no")
        page.get_by_label("User").fill("anna")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_role("alert").wait_for()
        page.get_by_label("Password").fill("secret")
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=1, name="Logs").wait_for()
        assert page.url.endswith("/logs?server=no")
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("User").wait_for()
        page.goto(f"{look.origin}/clients")
        page.get_by_label("User").wait_for()
        look.close()
