"""Actions in a real browser: only for an operator where they are switched on; a dialog states the effect and gives the
focus back, and the server has done what it said."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.browser.conftest import message
from tests.support.browser import Browsing, Console, Server, browsing, publish_all, until
from tests.support.paho_client import PahoClient
from timestone.reading.named_readers import ReaderId
from timestone.reading.retention_hold import Pin
from timestone.view import StoreView, view_store

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

READER = ReaderId("mqtt", 0, "spark.cooling")
TOPIC = "plant/hall-0/press-00/temperature"
DIALOGS = {
    "disconnect": ("/client?id=stays", "Disconnect"),
    "end session": ("/client?id=stays", "End session"),
    "watch": ("/client?id=stays", "Watch"),
    "publish anywhere": ("/topics", "Publish"),
    "publish": (f"/topic?topic={TOPIC}", "Publish"),
    "delete retained": ("/topic?topic=kept", "Delete retained"),
    "publish again": ("/records?log=mqtt&from=0&order=oldest&at=0", "Publish again"),
    "configure": ("/log?log=mqtt", "Configure"),
    "roll": ("/log?log=mqtt", "Roll"),
    "verify": ("/log?log=mqtt", "Verify the store"),
    "move": ("/readers?name=spark.cooling&log=mqtt", "Move"),
    "release": ("/readers?name=spark.cooling&log=mqtt", "Release pin"),
    "forget": ("/readers?name=spark.cooling&log=mqtt", "Forget"),
    "log level": ("/alerts", "Log level"),
    "reload": ("/about", "Reload files"),
}


@pytest.fixture(scope="module")
def acted(
    tmp_path_factory: pytest.TempPathFactory, browser: Any
) -> Iterator[tuple[Server, Browsing, StoreView]]:
    """Return a server with a client, a reader and a retained message, and a console with actions."""
    store = tmp_path_factory.mktemp("acted") / "data"
    with Server(store, "--mqtt-traces-per-s", "10") as server, PahoClient("stays", level=5) as client:
        publish_all(server.address, [message(n) for n in range(50)])
        publish_all(server.address, [("kept", b"21.5")], retain=True)
        assert client.connect(server.address) == 0
        client.subscribe("answers/#")
        with view_store(store) as view:
            view.commit_readers({READER: 20}, pin=Pin(max_bytes=1 << 20))
            with Console(store, "--actions") as console, browsing(browser, console) as look:
                # Of clients that left, and of arguments that a dialog refuses.
                look.faults.allow("status 4[012]", "status of 4[012]")
                yield server, look, view


def opened(look: Browsing, path: str, label: str, theme: str = "light") -> Any:
    """Open the dialog of an action by keyboard, and return it once it states the effect."""
    page = look.open(f"{path}{'&' if '?' in path else '?'}theme={theme}")
    button = page.get_by_role("button", name=f"{label} …")
    button.first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=label)
    dialog.wait_for()
    dialog.locator(".effect").filter(has_not_text="Working out").wait_for()
    return dialog


def test_no_button_is_shown_where_actions_are_switched_off(look: Browsing) -> None:
    for path, label in {**DIALOGS, "delete retained": DIALOGS["publish"]}.values():
        path = path.replace("id=stays", "id=press-flood")
        page = look.open(path)
        assert not page.get_by_role("button", name=f"{label} …").count(), path


@pytest.mark.parametrize("name", DIALOGS)
def test_dialog_keeps_the_focus_and_gives_it_back(
    acted: tuple[Server, Browsing, StoreView], name: str
) -> None:
    axe_module = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is in the extra test"
    )
    _, look, _ = acted
    for theme in ("light", "dark"):
        dialog = opened(look, *DIALOGS[name], theme)
        page = look.page
        found = axe_module.Axe().run(page).response["violations"]
        assert not found, [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
        page.set_viewport_size({"width": 320, "height": 700})
        until(page, "document.querySelector('dialog').scrollWidth <= 320")
        page.set_viewport_size({"width": 1440, "height": 900})
        for _ in range(8):
            page.keyboard.press("Tab")
            # Beyond the last element is the browser itself, never the page below.
            assert page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        until(page, f"document.activeElement.textContent.startsWith('{DIALOGS[name][1]}')")


def confirmed(dialog: Any, name: str = "") -> None:
    """Type the name if the dialog wants one, do it, and close the dialog."""
    page = dialog.page
    submit = dialog.locator("button[type=submit]")
    if name:
        assert submit.is_disabled()
        dialog.get_by_label("to confirm").fill(name + "x")
        assert submit.is_disabled()
        dialog.get_by_label("to confirm").fill(name)
    submit.click()
    dialog.get_by_text("Done.").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_client_is_watched_disconnected_and_its_session_ended(
    acted: tuple[Server, Browsing, StoreView],
) -> None:
    server, look, _ = acted
    with PahoClient("leaves", level=5) as client:
        assert client.connect(server.address) == 0
        dialog = opened(look, "/client?id=leaves", "Watch")
        assert "each packet of 1 connection" in dialog.locator(".effect").inner_text()
        confirmed(dialog)
        client.publish("watched/topic", b"value", qos=1)
        row = look.page.locator(".timeline li", has_text="PUBLISH in")
        row.get_by_text("Each packet").click()
        row.get_by_text("watched/topic").first.wait_for()
        dialog = opened(look, "/client?id=leaves", "Disconnect")
        assert (
            "Ends 1 connection of client 'leaves' with 0 messages in flight"
            in dialog.locator(".effect").inner_text()
        )
        confirmed(dialog)
        assert client.disconnected.wait(30)
    with PahoClient("ends", level=4) as client:
        assert client.connect(server.address) == 0
        confirmed(opened(look, "/client?id=ends", "End session"), "ends")
        assert client.disconnected.wait(30)


def test_message_is_published_retained_again_and_deleted(acted: tuple[Server, Browsing, StoreView]) -> None:
    server, look, view = acted
    with PahoClient("listens", level=5) as client:
        assert client.connect(server.address) == 0
        client.subscribe("by/hand")
        dialog = opened(look, *DIALOGS["publish anywhere"])
        dialog.get_by_label("Topic").fill("by/hand")
        dialog.get_by_label("Value").fill('{"t": 1}')
        dialog.get_by_label("Retain it").check()
        dialog.get_by_text("Publishes 8 bytes to 'by/hand' at QoS 1").wait_for()
        confirmed(dialog)
        assert client.receive() == ("by/hand", b'{"t": 1}')
        at = view.log("mqtt").refresh() - 1
        confirmed(opened(look, f"/records?log=mqtt&from={at}&order=oldest&at={at}", "Publish again"))
        assert client.receive() == ("by/hand", b'{"t": 1}')
        confirmed(opened(look, "/topic?topic=by/hand", "Delete retained"), "by/hand")
        until(
            look.page,
            "![...document.querySelectorAll('button')].some((one) => one.textContent.startsWith('Delete'))",
        )


def test_reader_is_moved_released_and_forgotten(acted: tuple[Server, Browsing, StoreView]) -> None:
    _, look, view = acted
    dialog = opened(look, *DIALOGS["move"])
    dialog.get_by_label("Offset").fill("5000")
    dialog.get_by_text("invalid offset").wait_for()
    assert dialog.locator("button[type=submit]").is_disabled()
    dialog.get_by_label("Offset").fill("5")
    dialog.get_by_text("reads 15 offsets again").wait_for()
    confirmed(dialog)
    found = view.readers()[READER]
    assert found.offset == 5 and found.pin is not None
    confirmed(opened(look, *DIALOGS["release"]))
    assert view.readers()[READER].pin is None
    confirmed(opened(look, *DIALOGS["forget"]), "spark.cooling")
    look.page.get_by_text("No such reader").wait_for()
    assert READER not in view.readers()
    view.commit_readers({READER: 20}, pin=Pin(max_bytes=1 << 20))


def test_log_is_configured_rolled_and_verified_and_all_is_in_the_audit(
    acted: tuple[Server, Browsing, StoreView],
) -> None:
    _, look, view = acted
    dialog = opened(look, *DIALOGS["configure"])
    dialog.get_by_label("Value").fill("604800000")
    dialog.get_by_text("retention_ms from 0 to 604800000").wait_for()
    confirmed(dialog)
    row = view.row("mqtt", 0)
    assert row is not None and row.config.retention_ms == 604_800_000
    for name in ("roll", "verify", "log level", "reload"):
        confirmed(opened(look, *DIALOGS[name]))
    page = look.open("/alerts?view=actions")
    for name in ("configure", "roll", "scrub", "log level", "reload"):
        page.locator(".timeline li", has_text=name).filter(has_text="done").first.wait_for()


def test_failure_is_shown_in_the_dialog(acted: tuple[Server, Browsing, StoreView]) -> None:
    _, look, view = acted
    dialog = opened(look, *DIALOGS["forget"])
    dialog.get_by_label("to confirm").fill("spark.cooling")
    view.forget_readers([READER])
    dialog.locator("button[type=submit]").click()
    dialog.get_by_role("alert").get_by_text("It failed").wait_for()
    look.page.keyboard.press("Escape")
    view.commit_readers({READER: 20}, pin=Pin(max_bytes=1 << 20))


def test_trace_shows_the_steps_of_a_batch(acted: tuple[Server, Browsing, StoreView]) -> None:
    server, look, _ = acted
    publish_all(server.address, [message(n) for n in range(5)])
    page = look.open("/alerts?view=traces")
    steps = page.locator(".trace").first
    steps.wait_for()
    assert steps.locator("dt").all_inner_texts()[0] == "publish"
    steps.locator("xpath=..").get_by_role("link").click()
    page.get_by_role("heading", level=1, name="Records of mqtt-0").wait_for()
