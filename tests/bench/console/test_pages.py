from pathlib import Path

from timestone_bench.console.pages import SHELL, linked, pages

WEB = Path(__file__).parents[3] / "console" / "web"


def test_each_page_of_the_console_but_those_of_one_thing_has_calls() -> None:
    named = {page.split(",")[0] for page in pages(0)}
    assert named <= {path.stem for path in (WEB / "pages").glob("*.js")}
    assert {"overview", "clients", "topics", "logs", "records", "readers", "alerts", "about"} <= named
    assert all(one.path.startswith("/api/v1/") for asks in (*pages(0).values(), SHELL) for one in asks)


def test_links_of_a_page_and_of_a_module_are_paths() -> None:
    page = (WEB / "index.html").read_text("utf-8")
    assert {"/main.js", "/style.css"} <= linked("/", page)
    assert linked(
        "/pages/topic.js", "import { a } from '../lib/api.js';\nimport './x.js';\nimport('./y.js')"
    ) == {
        "/lib/api.js",
        "/pages/x.js",
    }
