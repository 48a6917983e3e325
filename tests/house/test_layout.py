"""One noun a file, a test file for each, and nothing left lying about."""

import re
from pathlib import Path

from tests.house.tree import ROOT, modules, tracked_files

UNTESTED = {
    "cli/__main__.py": "three lines; tests/cli starts it as a process",
    "timestone/upkeep/host.py": "protocols only, which mypy checks",
    "mqtt_front/handlers/server.py": "protocols only, which mypy checks",
}
"""Modules without a test file of their own name, and why."""

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}

LEFTOVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")

KNOWN_HOST = re.compile(
    r"www\.apache\.org|spark\.apache\.org|docs\.oasis-open\.org|www\.rfc-editor\.org"
    r"|127\.0\.0\.1|(.+\.)?localhost|(.+\.)?example(\.\w+)?"
)
"""Pages that may be pointed to. Where packages come from is the business of whoever installs them."""


def own_test_files(module: Path) -> list[Path]:
    """Where the tests of a module may be: `tests/<package>/[<folder>/]test_<module>.py`."""
    package, *folders, name = module.parts
    return [
        Path("tests", package, *folders, f"test_{name}"),
        Path("tests", package, "_".join(["test", *folders, name])),
    ]


def is_tested(module: Path) -> bool:
    return any((ROOT / path).exists() for path in own_test_files(module))


def test_every_module_has_a_test_file_of_its_own_name() -> None:
    without = {str(module) for module in modules() if module.name != "__init__.py" and not is_tested(module)}
    missing = sorted(without - set(UNTESTED))
    assert not missing, "add tests/<package>/test_<module>.py for\n" + "\n".join(missing)
    assert sorted(set(UNTESTED) - without) == [], "tested by now, or gone: take it off the list"


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [str(module) for module in modules() if module.stem in VAGUE_NAMES] == []


def test_no_file_holds_leftovers_or_strange_addresses() -> None:
    complaints = []
    for path in tracked_files():
        try:
            text = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a golden file or a picture
        for number, line in enumerate(text.splitlines(), 1):
            hosts = re.findall(r"https?://([\w.-]+)", line)
            strange = [host for host in hosts if not KNOWN_HOST.fullmatch(host)]
            if LEFTOVER.search(line) or strange or str(ROOT) in line:
                complaints.append(f"{path}:{number}: {line.strip()}")
    assert not complaints, "\n".join(complaints)


def test_text_files_end_with_one_newline_and_hold_no_tabs_or_trailing_blanks() -> None:
    complaints = []
    for path in tracked_files():
        if path.suffix not in {".py", ".md", ".toml", ".pyx", ".pyi"}:
            continue
        text = (ROOT / path).read_text("utf-8")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            complaints.append(f"{path}: end of file")
        complaints += [
            f"{path}:{n}" for n, line in enumerate(text.split("\n"), 1) if re.search(r"\t|[ \t]$", line)
        ]
    assert not complaints, "\n".join(complaints)
