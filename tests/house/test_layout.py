"""One noun a file, a test file for each, small rooms, and no leftovers."""

import ast
import re
from collections import Counter
from pathlib import Path

from tests.house.tree import ROOT, modules, tracked_files

UNTESTED = {
    "cli/__main__.py": "three lines; tests/cli starts it as a process",
    "timestone/replication/upkept_replica.py": "a protocol only, which mypy checks",
    "timestone/upkeep/host.py": "protocols only, which mypy checks",
    "timestone/upkeep/tier.py": "protocols only, which mypy checks",
    "cluster/actions.py": "values only",
    "cluster/frames.py": "values only",
    "cluster/operations.py": "calls of etcd, which tests/cli/live/test_cluster.py makes against a real one",
    "mqtt_front/handlers/server.py": "protocols only, which mypy checks",
}
"""Modules without a test file of their own name, and why."""

MOST_FILES, MOST_LINES, MOST_FUNCTION_LINES = 15, 500, 60
"""Of a room (without its `__init__.py`), of a module, of a function."""

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}

LEFTOVER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")

KNOWN_HOST = re.compile(
    r"www\.apache\.org|spark\.apache\.org|docs\.oasis-open\.org|www\.rfc-editor\.org"
    r"|www\.w3\.org"  # the name space of SVG
    r"|127\.0\.0\.1|evil\.test|(.+\.)?localhost|(.+\.)?example(\.\w+)?"
)
"""Hosts that links may point to. The source of packages is the choice of each user."""


def own_test_files(module: Path) -> list[Path]:
    """Return where the tests of a module may be: `tests/<package>/[<folder>/]test_<module>.py`."""
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


def test_rooms_hold_few_files() -> None:
    sizes = Counter(str(module.parent) for module in modules() if module.name != "__init__.py")
    assert {room: count for room, count in sizes.items() if count > MOST_FILES} == {}


def test_modules_are_short() -> None:
    assert [str(module) for module in modules() if len(lines_of(module)) > MOST_LINES] == []


def test_functions_are_short() -> None:
    found: dict[str, set[str]] = {}
    for module in modules():
        for node in ast.walk(ast.parse("\n".join(lines_of(module)))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (node.end_lineno or 0) - node.lineno >= MOST_FUNCTION_LINES:
                found.setdefault(str(module), set()).add(node.name)
    assert found == {}


def lines_of(module: Path) -> list[str]:
    return (ROOT / module).read_text("utf-8").splitlines()


def test_no_module_has_a_meaningless_name() -> None:
    assert [str(module) for module in modules() if module.stem in VAGUE_NAMES] == []


def test_files_have_no_leftovers_and_no_foreign_addresses() -> None:
    throttled_log = []
    for path in tracked_files():
        if path.is_relative_to("console/web/vendor"):
            continue  # libraries as they were published
        try:
            text = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a golden file or a picture
        for number, line in enumerate(text.splitlines(), 1):
            hosts = re.findall(r"https?://([\w.-]+)", line)
            strange = [host for host in hosts if not KNOWN_HOST.fullmatch(host)]
            if LEFTOVER.search(line) or strange or str(ROOT) in line:
                throttled_log.append(f"{path}:{number}: {line.strip()}")
    assert not throttled_log, "\n".join(throttled_log)


def test_text_files_end_with_one_newline_and_have_no_tabs_or_trailing_blanks() -> None:
    throttled_log = []
    for path in tracked_files():
        if path.suffix not in {".py", ".md", ".toml", ".pyx", ".pyi"}:
            continue
        text = (ROOT / path).read_text("utf-8")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            throttled_log.append(f"{path}: end of file")
        throttled_log += [
            f"{path}:{n}" for n, line in enumerate(text.split("\n"), 1) if re.search(r"\t|[ \t]$", line)
        ]
    assert not throttled_log, "\n".join(throttled_log)
