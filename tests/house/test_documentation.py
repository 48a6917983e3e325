"""Links, files and tests that pages name exist. `tests/docs` runs the commands of the pages."""

import re
from pathlib import Path

import pytest

from tests.house.pages import RUNNABLE, Block, anchors, blocks, links, pages, ports_of
from tests.house.tree import PACKAGES, ROOT


def test_pages_do_not_get_in_each_others_way() -> None:
    """A reader does one page after the other in one shell: each has a folder, and a server a port of its own."""
    folders: dict[str, Path] = {}
    ports: dict[str, Path] = {}
    for page in pages():
        running = [block for block in blocks(page) if block.runs]
        text = "\n".join(block.text for block in running)
        if page == Path("README.md") or not re.search(r"""["' ]data\b|timestone append""", text):
            continue  # who reads the README comes first, and may be anywhere
        begins = re.match(r"\$ mkdir ([\w-]+) && cd \1$", running[0].text, re.MULTILINE)
        assert begins, f"{page}:{running[0].line}: begin with $ mkdir FOLDER && cd FOLDER"
        assert begins[1] not in folders, f"{page} uses the folder of {folders[begins[1]]}"
        folders[begins[1]] = page
        for port in ports_of(page):
            assert port not in ports, f"{page} uses the port of {ports[port]}"
            ports[port] = page
        assert len(ports_of(page)) <= 1, f"{page}: one port is enough"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_blocks_of_a_page_follow_the_conventions(page: Path) -> None:
    found = blocks(page)
    check_servers_are_waited_for_and_stopped(page, found)
    check_blocks_have_a_language_and_existing_targets(page, found)
    asserting = [
        block.line for block in found if block.runs and block.language == "python" and "assert " in block.text
    ]
    assert asserting == [], f"{page}: let the program print it, and show the output in a text block below"


def check_servers_are_waited_for_and_stopped(page: Path, found: list[Block]) -> None:
    steps = [
        step for block in found if block.runs and block.language == "console" for step, _ in block.commands()
    ]
    running = False
    for number, step in enumerate(steps):
        if step.startswith("timestone serve ") and step.endswith("&"):
            running = True
            assert steps[number + 1].startswith("timestone wait"), f"{page}: {step}"
        elif step.startswith("kill %timestone; wait"):
            running = False
    assert not running, f"{page} leaves a server running"


def check_blocks_have_a_language_and_existing_targets(page: Path, found: list[Block]) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for block in found:
        assert block.language, f"{page}:{block.line}: name the language of the block, `text` if there is none"
        assert block.language in RUNNABLE or block.excuse is None
        wanted = set(re.findall(r"\bmake ([a-z]+)", block.text))
        assert wanted <= targets, f"{page}:{block.line}: no such target: {wanted - targets}"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    nowhere = []
    for text, target in links(page):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = (ROOT / page).parent / path if path else ROOT / page
        if not there.exists() or (anchor and anchor not in anchors(there.resolve().relative_to(ROOT))):
            nowhere.append(f"{text} -> {target}")
    whole = (ROOT / page).read_text("utf-8")
    folders = "|".join([*PACKAGES, "tests", "docs", "examples"])
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", whole)
    nowhere += [name for name in named if not (ROOT / name).exists()]
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", whole):
        if f"def {name}(" not in (ROOT / path).read_text("utf-8"):
            nowhere.append(f"{path}::{name}")
    assert not nowhere, f"{page}: " + ", ".join(nowhere)


def test_readmes_table_of_places_names_existing_files_and_symbols() -> None:
    """A row of the README's table: a task, links to files, and in code style a symbol of the first of them."""
    rows = [
        line
        for line in (ROOT / "README.md").read_text("utf-8").splitlines()
        if line.startswith("|") and "](" in line
    ]
    assert len(rows) > 10
    for row in rows:
        first = re.findall(r"\]\(([^)#]+)\)", row)[0]
        if not first.endswith(".py"):
            continue
        text = (ROOT / first).read_text("utf-8")
        for name in re.findall(r"`(\w+)`", row):
            assert name in text, f"{first} has no {name}"


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = [target for _, target in links(Path("docs/decisions/README.md"))]
    assert sorted(listed) == sorted(path.name for path in folder.glob("0*.md"))
