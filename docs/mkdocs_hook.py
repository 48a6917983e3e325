"""Hook of mkdocs: the pages read the same on a code host and on the site.

README.md, CONTRIBUTING.md and CHANGELOG.md lie beside `docs` and become pages of the site. A link to a file of the
source tree, which the site does not have, becomes the path of that file as code.
"""

import re
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.append(str(Path(__file__).parent))
from generated_pages import commands_page, settings_page

ROOT = Path(__file__).parents[1]
OUTER = {"README.md": "start.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages beside `docs` -> their name on the site."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie beside `docs`, and those that are made from the code."""
    pages = {name: (ROOT / outer).read_text("utf-8") for outer, name in OUTER.items()}
    pages |= {"all-commands.md": commands_page(), "all-settings.md": settings_page()}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to where their target is on the site; name what is not there."""
    source = page.file.src_uri
    outer = next((path for path, name in OUTER.items() if name == source), None)
    folder = PurePosixPath(".") if outer else PurePosixPath("docs", source).parent

    def pointed(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if not target or ":" in target:
            return match[0]
        path = normpath(str(folder / target))
        if (ROOT / path).is_dir():
            path = f"{path}/README.md"
        inner = OUTER.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inner is None or not files.get_file_from_path(inner):
            return (
                text if "`" in text else f"`{path}`" if text == path or "/" in text else f"{text} (`{path}`)"
            )
        up = "../" * (len(PurePosixPath(source).parts) - 1)
        return f"[{text}]({up}{inner}{anchor})"

    fenced = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(pointed, part) for part in fenced)
