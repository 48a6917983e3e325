"""Prose follows the manuals of SQLite, PostgreSQL and Kafka: the phrases below have a plainer form."""

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, tracked_files

PLAINER = {
    r"whoever|whatever|nobody|somebody|anybody": "name the part: the caller, the owner, another process, no process",
    r"(?:is|are|was|were|be|been|being) told": "name the call, the error or the log line",
    r"goes on|go on|went on": "continues",
    r"anew": "again",
    r"for ever": "permanently, endlessly, or the limit",
    r"meanwhile": "in the meantime has a subject: name what happens at the same time",
    r"mak(?:es?|ing) (?:no )?sense": "is (not) valid",
    r"that is none|is no [a-z]+ of": "is not a",
    r"lets? go of": "closes, releases",
}
"""Phrase -> what to write instead."""

FOLDERS = [*PACKAGES, "examples", "docs", "tests", "."]
"""`.` is the root of the repository."""

STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
"""From Python 3.12 on, the text of an f-string is a token of its own."""

PHRASE = re.compile(rf"\b(?:{'|'.join(PLAINER)})\b", re.IGNORECASE)


def folder_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "."


def joined_lines(text: str) -> str:
    return re.sub(r"\n *", " ", text)


def prose_of(path: Path) -> str:
    """Return the text of a file; of a Python file its comments and strings. A string without a blank is data."""
    text = (ROOT / path).read_text("utf-8")
    if path.suffix != ".py" or not PHRASE.search(joined_lines(text)):
        return text  # taking every file apart would be most of the time of `make prose`
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(
        token.string
        for token in tokens
        if token.type == tokenize.COMMENT or (token.type in STRINGS and " " in token.string)
    )


def findings(folder: str) -> list[str]:
    found = []
    for path in tracked_files():
        if (
            folder_of(path) != folder
            or path.suffix not in {".py", ".pyx", ".md"}
            or path.name == Path(__file__).name
        ):
            continue
        text = prose_of(path)
        for match in PHRASE.finditer(joined_lines(text)):
            found.append(f"{path}: … {match.string[max(0, match.start() - 40) : match.end() + 20]} …")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_prose_avoids_private_idiom(folder: str) -> None:
    found = findings(folder)
    assert not found, "\n".join(found)
