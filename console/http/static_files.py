"""Static files of the pages: a table made at start, so that no path of a request is ever joined to a folder."""

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/vnd.microsoft.icon",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".toml": "text/plain; charset=utf-8",
}
_WITHOUT_SUFFIX = ("LICENSE", "LICENCE")
"""Names of files without a suffix that are served as text."""
PAGES = (
    "/",
    "/login",
    "/clients",
    "/client",
    "/topics",
    "/topic",
    "/logs",
    "/log",
    "/records",
    "/record",
    "/readers",
    "/pipeline",
    "/dead-letters",
    "/alerts",
    "/events",
    "/actions",
    "/about",
    "/api",
)
"""Paths of pages: all are the same document, which shows what its URL says."""


class StaticFile(NamedTuple):
    """A file as it is sent."""

    content: bytes
    compressed: bytes
    """The same with gzip."""
    media_type: str
    etag: str


def static_files(folder: Path) -> dict[str, StaticFile]:
    """Return the files below a folder by the path of their URL, and the start page under the path of each page. Raises
    OSError."""
    found: dict[str, StaticFile] = {}
    for path in sorted(folder.rglob("*")):
        media_type = _TYPES.get(path.suffix)
        if media_type is None and path.name.startswith(_WITHOUT_SUFFIX):
            media_type = _TYPES[".txt"]
        if media_type is None or not path.is_file() or path.name.startswith("."):
            continue
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[f"/{path.relative_to(folder).as_posix()}"] = StaticFile(
            content, gzip.compress(content, mtime=0), media_type, etag
        )
    start = found.pop("/index.html")
    return {**found, **dict.fromkeys(PAGES, start)}
