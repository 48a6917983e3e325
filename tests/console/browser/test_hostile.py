"""Names and payloads of attackers are shown as text: nothing of them runs, loads or leaves its place."""

import csv
import io
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.attacks import ATTACKS
from tests.support.browser import Browsing, Console, Server, browsing, publish_all, until
from tests.support.paho_client import PahoClient

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

TRIPPED = "window.tripped"
"""What every attack with a script would set."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[tuple[Server, Browsing]]:
    """Return a server whose topics, payloads and client ids are attacks, and its console."""
    store = tmp_path_factory.mktemp("attacked") / "data"
    with Server(store) as server:
        topics = [f"attack/{number}/{name}" for number, name in enumerate(topic_names())]
        publish_all(
            server.address,
            [
                (topic, one.encode("utf-8", "surrogatepass"))
                for topic, one in zip(topics, ATTACKS, strict=False)
            ],
        )
        clients = [PahoClient(one, level=5) for one in client_ids()[:40]]
        for client in clients:
            assert client.connect(server.address) == 0
        with Console(store) as console, browsing(browser, console) as look:
            yield server, look
        for client in clients:
            client.__exit__()


def topic_names() -> list[str]:
    """Return the attacks that a topic may have as its name."""
    return [
        one.replace("+", "＋").replace("#", "＃").replace("\0", "") or "x" for one in ATTACKS if is_text(one)
    ]


def client_ids() -> list[str]:
    """Return the attacks that a client may have as its id."""
    return [one for one in ATTACKS if is_text(one) and one and "\0" not in one]


def is_text(text: str) -> bool:
    """Return whether a text can be sent by MQTT."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return not any(
        ord(one) < 32
        or 0x7F <= ord(one) < 0xA0
        or 0xFDD0 <= ord(one) <= 0xFDEF
        or ord(one) & 0xFFFE == 0xFFFE
        for one in text
    )


def test_there_are_two_hundred_attacks() -> None:
    assert len(ATTACKS) >= 200
    assert len(set(ATTACKS)) == len(ATTACKS)


@pytest.mark.parametrize(
    "path",
    [
        "/clients",
        "/topics?open=attack",
        "/topics?search=attack",
        "/records?log=mqtt&order=oldest",
        "/alerts?view=events",
        "/logs",
    ],
)
def test_lists_show_attacks_as_text(attacked: tuple[Server, Browsing], path: str) -> None:
    _, look = attacked
    page = look.open(path)
    assert page.evaluate(TRIPPED) is None
    assert (
        page.evaluate(
            "document.querySelectorAll('img, iframe, object, embed, main script, form[action], base, main link').length"
        )
        == 0
    )
    assert page.evaluate(
        "[...document.querySelectorAll('a[href]')].every((one) => one.origin === location.origin)"
    )
    assert not any(
        one in page.evaluate("document.body.textContent") for one in "\u202e\u200b\u2066\x1b\u0007"
    )


def test_each_attack_is_readable_in_its_record(attacked: tuple[Server, Browsing]) -> None:
    _, look = attacked
    wrong = []
    for offset in range(0, len(topic_names()), 9):
        page = look.open(f"/records?log=mqtt&order=oldest&from={offset}&at={offset}")
        until(page, "!!document.querySelector('aside .value, aside p')")
        if page.evaluate(TRIPPED) is not None or page.url.split("?")[0] != f"{look.origin}/records":
            wrong.append(offset)
    assert not wrong


def test_attacks_in_addresses_are_only_text(attacked: tuple[Server, Browsing]) -> None:
    _, look = attacked
    look.faults.allow("status 40[04]", "status of 40[04]", "status 422", "status of 422")
    for one in client_ids()[::12]:
        word = quote(one, safe="")
        for path in (
            f"/client?id={word}",
            f"/topic?topic={word}",
            f"/records?log=mqtt&filter={word}&text={word}",
            f"/readers?name={word}&log=mqtt",
            f"/clients?search={word}",
        ):
            page = look.page
            page.goto(look.origin + path)
            page.wait_for_selector("main h1")
            assert page.evaluate(TRIPPED) is None, (path, one)
            assert page.url.startswith(look.origin + "/"), (path, one)


def test_login_goes_to_no_other_origin(attacked: tuple[Server, Browsing]) -> None:
    _, look = attacked
    page = look.page
    page.goto(f"{look.origin}/about")
    for target in (
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:window.tripped=1",
        "/login",
        "\\\\evil.example",
    ):
        shown = page.evaluate(
            "(next) => import('/pages/login.js').then((module) => module.safeNext(next))", target
        )
        assert shown == "/", target
    assert (
        page.evaluate(
            "() => import('/pages/login.js').then((module) => module.safeNext('/clients?sort=lag'))"
        )
        == "/clients?sort=lag"
    )


def test_commands_to_copy_do_nothing_else_in_a_shell(
    attacked: tuple[Server, Browsing], tmp_path: Path
) -> None:
    _, look = attacked
    page = look.page
    page.goto(f"{look.origin}/about")
    words = [one for one in ATTACKS if is_text(one) or "\n" in one or "\x1b" in one]
    quoted = page.evaluate(
        "(words) => import('/lib/format.js').then((module) => words.map(module.shellWord))", words
    )
    script = "\n".join(f"printf '%s\\0' {one}" for one in quoted)
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == b""
    assert done.stdout.decode().split("\0")[:-1] == words
    assert list(tmp_path.iterdir()) == []
    assert all(shlex.split(one) for one in quoted if not one.startswith("$'"))


def test_values_with_hostile_json_are_bounded(attacked: tuple[Server, Browsing]) -> None:
    server, look = attacked
    deep = b"[" * 100_000 + b"]" * 100_000
    publish_all(
        server.address,
        [
            ("json/deep", deep),
            ("json/proto", b'{"__proto__": {"polluted": 1}, "constructor": 1e300, "a": 1, "a": 2}'),
            ("json/wide", b'{"k": [' + b"1," * 20_000 + b"1]}"),
            ("json/huge", b'{"big": ' + b"9" * 5000 + b"}"),
            ("json/not", bytes(range(256))),
            ("json/" + "x/" * 100, b"deep topic"),
        ],
    )
    for topic in ("json/deep", "json/proto", "json/wide", "json/huge", "json/not", "json/" + "x/" * 100):
        page = look.open(f"/topic?topic={quote(topic, safe='')}")
        until(page, "!!document.querySelector('main .value')")
        assert page.evaluate("({}).polluted") is None
        assert page.evaluate("document.querySelectorAll('*').length") < 8000
        for button in page.get_by_role("group", name="How the value is shown").get_by_role("button").all():
            button.click()
        until(page, "!!document.querySelector('main .value')")
    page = look.open("/topic?topic=json/proto")
    until(page, "document.querySelectorAll('.json .key').length === 5")
    assert page.locator(".json .key").all_inner_texts() == ["__proto__", "polluted", "constructor", "a", "a"]
    assert "1e300" in page.locator(".json").inner_text()


def test_table_is_saved_as_csv_that_no_spreadsheet_runs(attacked: tuple[Server, Browsing]) -> None:
    _, look = attacked
    page = look.open("/clients")
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(saved.value.path()).read_bytes().decode())))
    assert {row["client"].removeprefix("'") for row in rows} >= set(client_ids()[:40])
    assert not [row["client"] for row in rows if row["client"][0] in "=+-@\t\r"]
