"""The tables of docs/scale.md: each stands between a comment with the command that prints it, and one that ends it. As
a script, writes them again: `python -m timestone_bench.sizing.page docs/scale.md`, which `make scale` does."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from .command import command

_TABLE = re.compile(
    r"(?P<head><!-- timestone bench sizing (?P<words>[^\n]*) -->\n).*?(?P<end>\n<!-- end -->)", re.S
)


def filled(text: str) -> str:
    """Return a page with the tables that the commands print now."""
    return _TABLE.sub(lambda found: f"{found['head']}\n{_printed(found['words'])}{found['end']}", text)


def _printed(words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        command.main(shlex.split(words), standalone_mode=False)
    return out.getvalue()


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text("utf-8")), "utf-8")
