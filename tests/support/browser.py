"""A real browser against a real console: Debian's Chromium, driven by Playwright. A fault of a
page is an error in its console, a violated policy, a failed request, a dialog, a request to another origin."""

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from tests.cli.processes import Running
from tests.support.paho_client import PahoClient
from tests.support.waiting import wait_for

# The shell is the same engine without windows, which take most of the processor time.
NAMES = "chromium-headless-shell", "chromium", "chromium-browser"
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
ARGUMENTS = [
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]
WAIT_MS = 20_000
_REPORT_POLICY = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


def chromium() -> str:
    """Return the path of Chromium; skip the test without one."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium-headless-shell")
    return CHROMIUM


class Console:
    """`timestone console` on a store. `link` starts one session."""

    def __init__(self, store: Path, *options: str) -> None:
        self._running = Running("console", str(store), "--listen", "127.0.0.1:0", *options, cwd=store.parent)
        self.link = self._link()
        self.origin = self.link.split("/login")[0]

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._running.__exit__(*exception)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._running.process.pid

    def end(self) -> None:
        """Kill it."""
        self._running.process.kill()
        self._running.process.wait(60)

    def _link(self) -> str:
        line = self._running.line()
        found = re.search(r"http://\S+/login#\S+", line)
        assert found, f"the console printed {line!r}"
        return found[0]


class Server:
    """`timestone serve` without a console, on free ports; a sample of its figures each second."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        store.parent.mkdir(parents=True, exist_ok=True)
        words = [
            "serve",
            "--data",
            str(store),
            "--mqtt",
            "127.0.0.1:0",
            "--metrics-interval-ms",
            "1s",
            "--console",
            "none",
            "--log-level",
            "error",
        ]
        self._running = Running(*words, *options, cwd=store.parent)
        self.address = ("127.0.0.1", self._port())

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._running.__exit__(*exception)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._running.process.pid

    def kill(self) -> None:
        """End it without a chance to write anything."""
        self._running.process.kill()
        self._running.process.wait(60)

    def _port(self) -> int:
        while line := self._running.line():
            if found := re.search(r"mqtt on 127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise AssertionError("the server did not start")


class Faults:
    """What went wrong in the pages of a context. `allow` names what a test causes on purpose."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._allowed: list[str] = []
        self.found: list[str] = []

    def allow(self, *patterns: str) -> None:
        """Pass over faults that match a pattern."""
        self._allowed += patterns

    def watch(self, page: Any) -> None:
        """Note the faults of a page."""
        page.add_init_script(_REPORT_POLICY)
        page.on(
            "console",
            lambda message: self._note(f"console: {message.text}") if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: self._note(f"exception: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def check(self) -> None:
        """Fail with what was found."""
        wrong = [one for one in self.found if not any(re.search(pattern, one) for pattern in self._allowed)]
        assert not wrong, "\n".join(wrong[:20])

    def _note(self, text: str) -> None:
        self.found.append(text)

    def _dialog(self, dialog: Any) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self._origin + "/", "data:")):
            self._note(f"other origin: {request.url}")

    def _failed(self, request: Any) -> None:
        # A page that is left cancels its requests.
        if request.failure != "net::ERR_ABORTED":
            self._note(f"failed: {request.url} {request.failure}")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self._note(f"status {response.status}: {response.url}")


class Served(Protocol):
    """A console that serves, of a command or of a server."""

    @property
    def origin(self) -> str: ...


class Browsing:
    """A context of a browser that has a session of a console."""

    def __init__(self, browser: Any, console: Served, state: Any, **options: Any) -> None:
        self.origin = console.origin
        self.context = browser.new_context(storage_state=state, **options)
        self.context.set_default_timeout(WAIT_MS)
        self.faults = Faults(console.origin)
        self.page = self.new_page()

    def new_page(self) -> Any:
        """Open another tab."""
        page = self.context.new_page()
        self.faults.watch(page)
        return page

    def open(self, path: str, *, page: Any = None) -> Any:
        """Go to a page, and wait until its heading and its data are there."""
        page = page or self.page
        page.goto(self.origin + path)
        self.settle(page)
        return page

    def settle(self, page: Any = None) -> None:
        """Wait until a page shows its data."""
        page = page or self.page
        page.wait_for_selector("main h1")
        until(
            page,
            "document.querySelector('main [data-shown]') && !document.querySelector('.loading, [aria-busy]')",
        )

    def close(self) -> None:
        """Close it, and fail with the faults of its pages."""
        self.context.close()
        self.faults.check()


def until(page: Any, expression: str, timeout_s: float = 20.0) -> None:
    """Wait until an expression is true in a page. Playwright's own waiting evaluates strings inside the page, which its
    policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"{expression} did not come true at {page.url}"
        page.wait_for_timeout(25)


def log_in(browser: Any, console: Console) -> Any:
    """Use the link of a console; return the state of the session for other contexts."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(console.link)
        page.wait_for_url(f"{console.origin}/", timeout=WAIT_MS)
        return context.storage_state()
    finally:
        context.close()


@contextmanager
def browsing(browser: Any, console: Console, **options: Any) -> Iterator[Browsing]:
    """Open a console that has just started, log in, and check its pages for faults at the end."""
    found = Browsing(browser, console, log_in(browser, console), **options)
    try:
        yield found
    except BaseException:
        found.context.close()
        raise
    found.close()


class Publisher:
    """Real client that publishes at a rate, in its own thread, until the `with` block ends."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        rate: float,
        topic: str,
        payload: Callable[[int], bytes],
    ) -> None:
        self._paho = PahoClient(client_id, level=5)
        assert self._paho.connect(address) == 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(rate, topic, payload), daemon=True)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(30)
        self._paho.__exit__()

    def _run(self, rate: float, topic: str, payload: Callable[[int], bytes]) -> None:
        began = time.monotonic()
        while not self._ended.wait(max(0.0, began + self.count / rate - time.monotonic())):
            self._paho.client.publish(topic, payload(self.count), qos=1)
            self.count += 1


def publish_all(
    address: tuple[str, int], messages: list[tuple[str, bytes]], client_id: str = "writer", **options: Any
) -> None:
    """Publish messages at QoS 1, and wait until all are acknowledged."""
    with PahoClient(client_id, level=5) as client:
        assert client.connect(address) == 0
        infos = [client.client.publish(topic, payload, qos=1, **options) for topic, payload in messages]
        wait_for(lambda: all(info.is_published() for info in infos))
