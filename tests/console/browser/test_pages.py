"""Every page in a real browser: it shows what clients counted, by mouse and keyboard, in both themes, at any width."""

import re
import time
from typing import Any

import pytest

from tests.console.browser.conftest import value
from tests.support.browser import Browsing, Console, Server, publish_all, until
from tests.support.paho_client import PahoClient

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

PAGES = {
    "overview": "/",
    "clients": "/clients",
    "client": "/client?id=press-flood",
    "topics": "/topics",
    "topic": "/topic?topic=plant/hall-0/press-00/temperature",
    "logs": "/logs",
    "log": "/log?log=mqtt",
    "records": "/records?log=mqtt",
    "record": "/records?log=mqtt&from=0&order=oldest&at=3",
    "readers": "/readers",
    "pipeline": "/pipeline",
    "alerts": "/alerts",
    "events": "/alerts?view=events",
    "about": "/about",
}
WITHOUT_A_PIPELINE = r"/api/v1/pipeline|status of 404"
"""The plant has none: the page says how to start the console with one."""


@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_fault_in_either_theme_at_any_width(look: Browsing, name: str) -> None:
    axe_module = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is in the extra test"
    )
    look.faults.allow(WITHOUT_A_PIPELINE)
    path, page = PAGES[name], look.page
    for theme in ("light", "dark"):
        look.open(f"{path}{'&' if '?' in path else '?'}theme={theme}")
        found = axe_module.Axe().run(page)
        wrong = [
            (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0].get("failureSummary", "")[:300])
            for one in found.response["violations"]
        ]
        assert not wrong, wrong
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.locator("nav[aria-label=Pages] a[aria-current=page]").count() == 1
    assert page.title().endswith("– Timestone")
    assert page.evaluate("document.querySelectorAll('*').length") < 2500
    for width in (1440, 720, 320):  # 720 is a window of 1440 at 200 %
        page.set_viewport_size({"width": width, "height": 800})
        until(page, f"document.documentElement.scrollWidth <= {width}")


def test_overview_shows_what_clients_counted(look: Browsing, plant: tuple[Server, Console, Any]) -> None:
    server, _, _ = plant
    with PahoClient("counter", level=5) as reader:
        assert reader.connect(server.address) == 0
        reader.subscribe("exact/#", qos=1)
        publish_all(server.address, [("exact/topic", value(n)) for n in range(1000)], "exact-writer")
        for _ in range(1000):
            reader.messages.get(timeout=30)
        page = look.open("/client?id=counter")
        page.get_by_text("1,000 on this connection").wait_for()
    page = look.open("/alerts?view=events")
    row = page.locator("li", has=page.get_by_role("link", name="exact-writer", exact=True)).filter(
        has_text="Disconnected"
    )
    row.get_by_text("1,000 publishes in").wait_for()


def test_overview_is_live_while_a_client_publishes(look: Browsing) -> None:
    page = look.open("/")
    until(page, "parseFloat(document.querySelector('.tile dd').textContent) > 20")


def test_chart_has_its_numbers_as_sentence_and_table(look: Browsing) -> None:
    page = look.open("/?span=15m")
    figure = page.locator("figure.chart", has_text="Messages a second")
    figure.get_by_text(re.compile(r"highest \S+ at ")).wait_for()  # of two samples at least
    figure.get_by_role("button", name="Data of Messages a second").click()
    table = figure.get_by_role("table", name="Messages a second")
    table.wait_for()
    assert table.get_by_role("columnheader").all_inner_texts() == ["Time", "in", "out"]
    assert table.locator("tbody tr").count() > 0
    until(
        page,
        "[...document.querySelectorAll('.chart tbody td:nth-child(2)')].some((one) => /[1-9]/.test(one.innerText))",
    )


def test_axe_finds_nothing_when_the_help_is_open(look: Browsing) -> None:
    axe_module = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is in the extra test"
    )
    page = look.open("/")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    assert not axe_module.Axe().run(page).response["violations"]


def test_keys_lead_everywhere(look: Browsing) -> None:
    look.faults.allow(WITHOUT_A_PIPELINE)
    page = look.open("/")
    for key, heading in {
        "c": "Clients",
        "t": "Topics",
        "l": "Logs",
        "r": "Records of mqtt-0",
        "e": "Readers",
        "p": "Pipeline",
        "a": "Alerts",
        "b": "About",
        "o": "Overview",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()
        assert page.evaluate("document.activeElement.tagName") in ("H1", "BODY")


def test_help_gives_the_focus_back(look: Browsing) -> None:
    page = look.open("/")
    button = page.get_by_role("button", name="Keys")
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="detached")
    until(page, "document.activeElement.textContent === 'Keys'")


def test_rows_are_opened_by_keys_alone(look: Browsing) -> None:
    page = look.open("/clients")
    page.keyboard.press("/")
    page.keyboard.type("press-fl")
    until(page, "location.search === '?search=press-fl'")
    page.locator("tbody tr").first.get_by_text("press-flood").wait_for()
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="press-flood").wait_for()


def test_every_control_is_reached_by_the_tab_key(look: Browsing) -> None:
    page = look.open("/clients")
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "((one) => (one.textContent || one.getAttribute('aria-label') || '').trim())(document.activeElement)"
            )
        )
    assert {"Skip to the content", "Overview", "Clients", "Held back", "press-flood", "Keys"} <= reached


def test_view_is_the_same_when_its_address_is_pasted_or_reloaded(look: Browsing) -> None:
    page = look.open("/clients")
    page.get_by_role("button", name="Client").click()
    page.wait_for_url("**/clients?sort=client")
    page.get_by_role("link", name="Silent for a minute").click()
    page.wait_for_url("**trouble=silent**")
    address = page.url
    page.go_back()
    page.wait_for_url("**/clients?sort=client")
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Client")
    page.go_forward()
    page.wait_for_url(address)
    page.reload()
    look.settle()
    assert page.locator("a[aria-current=true]", has_text="Silent for a minute").count() == 1
    other = look.new_page()
    other.goto(address)
    look.settle(other)
    assert other.locator("th[aria-sort=ascending]").inner_text().startswith("Client")
    other.get_by_role("link", name="All", exact=True).click()
    other.wait_for_url("**/clients?sort=client")
    assert page.url == address


def test_theme_follows_the_system_unless_the_address_has_one(look: Browsing) -> None:
    page = look.page
    page.emulate_media(color_scheme="dark")
    look.open("/about")
    until(page, "document.documentElement.dataset.theme === 'dark'")
    page.emulate_media(color_scheme="light")
    until(page, "document.documentElement.dataset.theme === 'light'")
    page.get_by_role("button", name="Theme: System").click()
    page.get_by_role("button", name="Theme: Light").click()
    until(page, "document.documentElement.dataset.theme === 'dark'")
    page.get_by_role("link", name="Logs", exact=True).click()
    page.wait_for_url("**/logs?theme=dark")
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_nothing_moves_when_motion_is_reduced(look: Browsing) -> None:
    page = look.page
    page.emulate_media(reduced_motion="reduce", forced_colors="active")
    look.open("/log?log=mqtt")
    assert page.evaluate(
        "[...document.querySelectorAll('*')].every((one) => getComputedStyle(one).animationName === 'none')"
    )
    page.locator(".state").first.wait_for()
    outline = "getComputedStyle(document.querySelector('.nav a[aria-current]')).outlineStyle"
    assert page.evaluate(outline) == "solid"  # the current page, where no colour says it


def test_live_tail_shows_records_and_pauses(look: Browsing, plant: tuple[Server, Console, Any]) -> None:
    server, _, _ = plant
    page = look.open("/records?log=mqtt&filter=tail/%23&live=1")
    page.locator(".state", has_text="Live").wait_for()
    publish_all(server.address, [("tail/topic", b'{"n": %d}' % n) for n in range(5)], "tail-writer")
    until(page, "document.querySelectorAll('main tbody tr').length === 5")
    assert '{"n": 4}' in page.locator("main tbody tr").first.inner_text()
    page.get_by_role("button", name="Pause").click()
    publish_all(server.address, [("tail/topic", b"late")], "tail-writer")
    page.get_by_text("Paused, 1 record waiting").wait_for()
    assert page.locator("main tbody tr").count() == 5
    page.get_by_role("button", name="Resume").click()
    until(page, "document.querySelectorAll('main tbody tr').length === 6")


def test_records_are_found_by_condition_and_opened(
    look: Browsing, plant: tuple[Server, Console, Any]
) -> None:
    server, _, _ = plant
    publish_all(
        server.address,
        [("find/me", b'{"state": {"code": 17}, "big": 12345678901234567890, "a": 1, "a": 2}')],
        "finder",
    )
    page = look.open("/records?log=mqtt&filter=find/me&path=state.code&value=17")
    page.locator("tbody tr a").first.click()
    detail = page.locator("aside")
    detail.get_by_text("12345678901234567890").wait_for()
    assert detail.get_by_text("a", exact=False).count() >= 1
    assert detail.locator(".json .row", has_text="a: ").all_inner_texts() == ["a: 1", "a: 2"]
    detail.get_by_role("button", name="Bytes").click()
    detail.get_by_text("000000  7b 22 73 74").wait_for()


def test_segments_are_a_map_with_words(look: Browsing) -> None:
    page = look.open("/log?log=mqtt")
    cell = page.locator(".map a").first
    assert "growing" in (cell.get_attribute("aria-label") or "")
    cell.click()
    page.wait_for_url("**segment=0**")


def test_clock_of_the_page_is_local_and_hover_is_utc(look: Browsing) -> None:
    page = look.open("/records?log=mqtt&from=0&order=oldest")
    stamp = page.locator("tbody time").first
    assert stamp.get_attribute("title").endswith("(UTC)")
    assert stamp.get_attribute("datetime").startswith(time.strftime("%Y", time.gmtime()))
