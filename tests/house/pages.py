"""The pages of the documentation as data: their fenced blocks and links. Parses the Markdown that these pages use.

A block that cannot run in a test follows a comment with the reason: `<!-- not run: installs packages -->`.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tests.house.tree import ROOT, tracked_files

FENCE = re.compile(r"^```(\S*)\s*$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")

RUNNABLE = {"python", "console", "sh"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, and the line of the page on which it begins."""

    page: Path
    line: int
    language: str
    text: str
    excuse: str | None
    """Why it is not run; None for a block that runs."""
    output: str = ""
    """Of a program: what it prints, from the `text` block that stands directly below it."""

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and self.excuse is None

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of a `console` block with the documented output of each (may be empty). A command begins
        with `$ ` and continues in lines that begin with `> `; everything else is output."""
        pairs: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                pairs.append((line[2:], []))
            elif line.startswith("> ") and pairs and not pairs[-1][1]:
                pairs[-1] = (f"{pairs[-1][0]}\n{line[2:]}", [])
            else:
                assert pairs, f"{self.page}:{self.line}: output before the first command"
                pairs[-1][1].append(line)
        return [(command, "\n".join(output)) for command, output in pairs]


def pages() -> list[Path]:
    """Return every Markdown file of the project, relative to ROOT."""
    return [path for path in tracked_files() if path.suffix == ".md"]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str | None] | None = None
    lines: list[str] = []
    excuse: str | None = None
    ended = 0
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened, lines = (number, fence[1], excuse), []
        elif opened is not None and fence:
            block = Block(page, opened[0], opened[1], "\n".join(lines), opened[2])
            if (
                block.language == "text"
                and found
                and found[-1].language == "python"
                and opened[0] - ended == 2
            ):
                found[-1] = replace(found[-1], output=block.text)
            found.append(block)
            opened, ended = None, number
        elif opened is not None:
            lines.append(line)
        said = NOT_RUN.match(line)
        excuse = said[1] if said else None
    assert opened is None, f"{page}: a fence is not closed"
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """Return (text, target) of the links outside of fenced blocks."""
    inside = False
    found: list[tuple[str, str]] = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            found += LINK.findall(line)
    return found


def anchors(page: Path) -> set[str]:
    """Return the valid anchors of a page: its headings, converted as usual."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def ports_of(page: Path) -> set[str]:
    """The ports that servers of a page listen on."""
    text = "\n".join(block.text for block in blocks(page) if block.runs)
    return set(re.findall(r"--(?:mqtt|flight) 127\.0\.0\.1:([1-9]\d*)", text))
