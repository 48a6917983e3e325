"""What the console serves to browsers: the vendored libraries are those of the lock file, and pages have no way around
the escaping of text."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.tree import ROOT, tracked_files

WEB = ROOT / "console" / "web"
VENDOR = WEB / "vendor"
AROUND_ESCAPING = re.compile(
    r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    r"|setTimeout\(['\"`]|srcdoc|javascript:|localStorage|sessionStorage"
)


def own_files() -> list[Path]:
    """Return the scripts, style sheets and documents that are ours."""
    paths = [ROOT / path for path in tracked_files() if path.is_relative_to("console/web")]
    return [
        path
        for path in paths
        if path.suffix in {".js", ".html", ".css", ".svg"} and VENDOR not in path.parents
    ]


def test_vendored_files_are_those_of_the_lock() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    table = tomllib.loads((VENDOR / "VENDOR.toml").read_text())
    libraries = {path.name for path in VENDOR.iterdir() if path.suffix in {".js", ".css"}}
    assert set(table) == libraries
    for name, facts in table.items():
        locked = lock[f"node_modules/{facts['package']}"]
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == facts["sha256"], name
        assert (facts["version"], facts["integrity"], facts["licence"]) == (
            locked["version"],
            locked["integrity"],
            locked["license"],
        )
        assert (
            "Permission is hereby granted" in (VENDOR / facts["licence_file"]).read_text()
            or "Apache License" in (VENDOR / facts["licence_file"]).read_text()
        )


def test_about_page_names_the_vendored_versions() -> None:
    about = (WEB / "pages" / "about.js").read_text()
    for facts in tomllib.loads((VENDOR / "VENDOR.toml").read_text()).values():
        assert (
            f"['{facts['package']}', '{facts['version']}', '{facts['licence']}', '{facts['licence_file']}']"
            in about
        )


def test_pages_have_no_way_around_escaping() -> None:
    wrong = [
        f"{path.relative_to(WEB)}:{number}: {found[0]}"
        for path in own_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := AROUND_ESCAPING.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_documents_have_no_inline_script_style_or_handler() -> None:
    for path in own_files():
        if path.suffix == ".html":
            text = path.read_text()
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text), path


def test_files_name_no_other_origin() -> None:
    hosts = {
        host
        for path in own_files()
        for host in re.findall(r"(?:https?:)?//([\w.-]+\.[a-z]{2,})/", path.read_text())
    }
    assert hosts <= {"www.w3.org"}, "the name space of SVG is no request, all else would be one"


def test_page_fits_its_budget() -> None:
    import gzip

    start = [
        "index.html",
        "style.css",
        "main.js",
        "vendor/preact.js",
        "vendor/hooks.js",
        "vendor/htm.js",
        "vendor/uplot.js",
    ]
    files = [WEB / name for name in start] + [
        *(WEB / "lib").iterdir(),
        *(WEB / "ui").iterdir(),
        *(WEB / "pages").iterdir(),
    ]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) < 110_000


@pytest.mark.slow
def test_vendored_files_are_what_their_packages_have() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging" / "vendor_console.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    if "npm" in done.stderr and "CalledProcessError" in done.stderr:
        pytest.skip("npm cannot reach its packages")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.slow
def test_types_hold_in_every_script() -> None:
    compiler = ROOT / "build" / "node" / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("TypeScript is not installed: make web installs it")
    done = subprocess.run([str(compiler), "--project", str(WEB)], capture_output=True, text=True, timeout=110)
    assert done.stdout == ""
    assert done.returncode == 0
