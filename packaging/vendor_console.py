#!/usr/bin/env python3
"""Fetch the libraries of the console by console/web/package-lock.json and copy what is served to console/web/vendor.

    packaging/vendor_console.py [--check]

--check changes nothing: it makes the files again and fails if those in vendor/ differ. Needs npm. Pages have no import
map, so the bare import of Preact's hooks becomes a relative one; uPlot's script becomes a module; the type checker is
told to pass over them.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parent.parent / "console" / "web"
VENDOR = WEB / "vendor"

FILES = {
    "preact.js": ("preact", "dist/preact.mjs", lambda text: text),
    "hooks.js": (
        "preact",
        "hooks/dist/hooks.mjs",
        lambda text: text.replace('from"preact"', 'from"./preact.js"'),
    ),
    "htm.js": ("htm", "dist/htm.mjs", lambda text: text),
    "uplot.js": ("uplot", "dist/uPlot.iife.min.js", lambda text: text + "\nexport default uPlot;\n"),
    "uplot.css": ("uplot", "dist/uPlot.min.css", lambda text: text),
}
"""File in vendor/ -> its package, its path there, and what is changed."""


def made(modules: Path, lock: dict) -> dict[str, bytes]:
    """Return every file of vendor/ by name."""
    found, lines = (
        {},
        ["# Made by `make vendor` from ../package-lock.json. tests/console/web/test_vendor.py checks it.\n"],
    )
    for name, (package, path, change) in FILES.items():
        text = change((modules / package / path).read_text())
        text = re.sub(r"\n?//# sourceMappingURL=.*\n?", "\n", text)
        found[name] = (f"// @ts-nocheck\n{text}" if name.endswith(".js") else text).encode()
        locked = lock["packages"][f"node_modules/{package}"]
        lines += [
            f'\n["{name}"]\npackage = "{package}"\nversion = "{locked["version"]}"\npath = "{path}"\n',
            f'licence = "{locked["license"]}"\nlicence_file = "LICENSE-{package}"\n',
            f'integrity = "{locked["integrity"]}"\nsha256 = "{hashlib.sha256(found[name]).hexdigest()}"\n',
        ]
    for package in sorted({package for package, _, _ in FILES.values()}):
        found[f"LICENSE-{package}"] = (modules / package / "LICENSE").read_bytes()
    found["VENDOR.toml"] = "".join(lines).encode()
    return found


def main() -> int:
    """Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(WEB / name, folder)
        subprocess.run(
            ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev"],
            cwd=folder,
            check=True,
        )
        files = made(Path(folder, "node_modules"), json.loads((WEB / "package-lock.json").read_text()))
    there = {path.name: path.read_bytes() for path in VENDOR.iterdir()} if VENDOR.is_dir() else {}
    if "--check" in sys.argv[1:]:
        wrong = sorted(name for name in files.keys() | there.keys() if files.get(name) != there.get(name))
        sys.stdout.writelines(
            f"console/web/vendor/{name} differs from what its package has\n" for name in wrong
        )
        return 1 if wrong else 0
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir()
    for name, content in files.items():
        (VENDOR / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
