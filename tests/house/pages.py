"""Our pages of documentation as data: their fenced blocks and links. Knows Markdown as far as we write it.

A block that cannot run in a test stands under a comment that says why: `<!-- not run: installs packages -->`.
"""

import re
from dataclasses import dataclass
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

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and self.excuse is None

    def commands(self) -> list[tuple[str, str]]:
        """The commands of a `console` block with the output that the page promises for each (may be empty).

        A command begins with `$ ` and goes on in lines that begin with `> `; everything else is output.
        """
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
    """Every Markdown file of ours, relative to ROOT."""
    return [path for path in tracked_files() if path.suffix == ".md"]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str | None] | None = None
    lines: list[str] = []
    excuse: str | None = None
    for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened, lines = (number, fence[1], excuse), []
        elif opened is not None and fence:
            found.append(Block(page, opened[0], opened[1], "\n".join(lines), opened[2]))
            opened = None
        elif opened is not None:
            lines.append(line)
        said = NOT_RUN.match(line)
        excuse = said[1] if said else None
    assert opened is None, f"{page}: a fence is not closed"
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """(text, target) of the links outside of fenced blocks."""
    inside = False
    found: list[tuple[str, str]] = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            found += LINK.findall(line)
    return found


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings of a page, the way they are usually turned into addresses."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
