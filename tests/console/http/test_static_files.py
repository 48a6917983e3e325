import gzip
from pathlib import Path

import pytest

from timestone_console.application import WEB
from timestone_console.http.static_files import PAGES, static_files


def test_table_has_the_pages_and_the_files_of_known_types(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>start")
    (tmp_path / "parts").mkdir()
    for name in ("parts/a.js", "package.json", ".hidden.js", "LICENSE-x", "notes"):
        (tmp_path / name).write_text(name)
    found = static_files(tmp_path)
    assert set(found) == {*PAGES, "/parts/a.js", "/LICENSE-x"}
    script = found["/parts/a.js"]
    assert (script.content, script.media_type) == (b"parts/a.js", "text/javascript; charset=utf-8")
    assert gzip.decompress(script.compressed) == script.content and script.etag != found["/"].etag


def test_own_pages_are_there() -> None:
    assert static_files(WEB)["/"].content.startswith(b"<!doctype html>")


def test_folder_without_a_start_page_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        static_files(tmp_path)
