"""Three tasks from the start page, without any page of the manual: who floods, what is wrong with the newest dead
letter, and since when and until when a reader is behind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.cli.processes import timestone as run_command
from tests.console.browser.conftest import message, value
from tests.support.browser import Browsing, Console, Publisher, Server, browsing, publish_all, until
from tests.support.waiting import wait_for
from timestone.reading.named_readers import ReaderId
from timestone.view import view_store

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]


def go_by_keys(page: Any, text: str, most: int = 12) -> None:
    """Go down the rows of a page to one with a text, and open it."""
    page.get_by_role("row").filter(has_text=text).first.wait_for()
    for _ in range(most):
        page.keyboard.press("j")
        if text in (page.evaluate("document.activeElement.closest('tr')?.innerText") or ""):
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"{text!r} is more than {most} keys away")


def test_client_that_floods_is_two_keys_away(look: Browsing) -> None:
    page = look.open("/")
    busiest = page.locator("section", has=page.get_by_role("heading", name="Busiest clients"))
    until(page, "/^press-flood\\s+[1-9]/.test(document.querySelector('main tbody tr').innerText)")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="press-flood").wait_for()
    page.locator(".tile", has_text="Messages in").wait_for()
    page = look.open("/")
    busiest.get_by_role("link", name="press-flood").click()
    page.get_by_role("heading", level=1, name="press-flood").wait_for()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_newest_dead_letter_shows_its_bytes_and_the_reason(tmp_path: Path, browser: Any) -> None:
    store, settings = tmp_path / "data", tmp_path / "pipeline.toml"
    with timestone.open(store) as opened:
        opened.log("mqtt").append(b'{"device": 7', topic="plant/a")
        opened.log("mqtt").append(b"\xff\xfe\x00broken", topic="plant/b")
    settings.write_text('[source]\npath = "data"\n[tables]\npath = "tables"\n')
    done = run_command("pipeline", "run", "--once", "--config", str(settings), cwd=tmp_path, timeout_s=500)
    assert done.returncode == 0, done.stderr
    with Console(store, "--pipeline", str(settings)) as console, browsing(browser, console) as look:
        page = look.open("/")
        go_by_keys(page, "not the JSON that was expected")
        page.get_by_role("complementary", name="Dead letter").get_by_text("plant/b").wait_for()
        page = look.open("/")
        page.keyboard.press("g")
        page.keyboard.press("p")
        letters = page.get_by_role("region", name="Table: Dead letters, the newest first")
        letters.locator("tbody a").first.click()
        detail = page.get_by_role("complementary", name="Dead letter")
        detail.get_by_text("not the JSON that was expected").wait_for()
        detail.get_by_role("button", name="Bytes").click()
        detail.get_by_text("000000  ff fe 00 62 72 6f 6b 65").wait_for()
        commits = page.get_by_role("region", name="Table: Last commits").locator("tbody tr")
        records, took = commits.filter(has_text="write").last.locator("td.n").all_inner_texts()
        assert records == "2" and took.endswith(" s")


@pytest.fixture
def behind(tmp_path: Path, browser: Any) -> Iterator[tuple[Server, Browsing]]:
    """Return a server with a reader that had read everything, fell behind and now catches up slowly."""
    store = tmp_path / "data"
    reader = ReaderId("mqtt", 0, "spark.cooling")
    with Server(store) as server:
        publish_all(server.address, [message(n) for n in range(200)])
        with view_store(store) as view, Publisher(server.address, "device", 20.0, "plant/x", value):
            log = view.log("mqtt")

            def lags_are(count: int) -> bool:
                samples = view.log("timestone.metrics")
                return samples.refresh() - began >= count

            began = view.log("timestone.metrics").refresh()
            view.commit_readers({reader: log.refresh()})
            wait_for(lambda: lags_are(3))
            publish_all(server.address, [message(n) for n in range(3000)], "burst")
            wait_for(lambda: lags_are(6))
            at = view.readers()[reader].offset
            began = view.log("timestone.metrics").refresh()
            for step in range(1, 7):
                at += 100
                view.commit_readers({reader: at})
                wait_for(lambda step=step: lags_are(step))  # type: ignore[misc]
            with (
                Console(store) as console,
                browsing(browser, console, viewport={"width": 1440, "height": 900}) as look,
            ):
                yield server, look


def test_reader_that_falls_behind_says_since_when_and_until_when(behind: tuple[Server, Browsing]) -> None:
    _, look = behind
    page = look.open("/")
    section = page.locator("section", has=page.get_by_role("heading", name="Readers furthest behind"))
    row = section.locator("tbody tr", has_text="spark.cooling")
    row.wait_for()
    row.get_by_role("link").click()
    story = page.locator("section", has=page.get_by_role("heading", name="spark.cooling")).locator("p")
    story.get_by_text("It has been falling behind since").wait_for()
    story.get_by_text("it will have caught up in").wait_for()
    figure = page.locator("figure.chart", has_text="Lag in records")
    figure.locator(".sentence", has_text="highest").wait_for()
    page = look.open("/")
    go_by_keys(page, "spark.cooling")
    story.get_by_text("it will have caught up in").wait_for()
