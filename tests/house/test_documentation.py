"""The pages are true: what they tell you to type works and prints what they say, and what they point to is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.pages import RUNNABLE, Block, anchors, blocks, links, pages
from tests.house.tree import PACKAGES, ROOT
from tests.support.ports import reserved_port

MQTT_PORT = "1883"
"""The pages use the port everybody knows; here each page gets a free one in its place."""

PROGRAMS = ROOT / "tests" / "support" / "page_programs.py"
PROLOGUE = """\
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
listening() {  # a command in the background is a server: go on when it takes connections
    for _ in $(seq 600); do (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done
    echo "nothing listens on port $1"; return 1
}
settled() {  # show what it has said once it has said so many lines, and says no more
    local before=-1
    for _ in $(seq 600); do [ "$(wc -l <"$1")" -lt "$2" ] || break; sleep 0.1; done
    until [ "$before" = "$(wc -c <"$1")" ]; do before=$(wc -c <"$1"); sleep 0.4; done
    cat "$1"
}
"""
ONE_PROCESS = f"""\
run() {{  # a program, in the process that runs all of the page's: they share one Java
    local line
    [ -n "${{PROGRAMS_PID:-}}" ] || coproc PROGRAMS {{ exec python -P -u '{PROGRAMS}' @done 2>&1; }}
    echo "$1" >&"${{PROGRAMS[1]}}"
    while IFS= read -r line <&"${{PROGRAMS[0]}}"; do
        [ "$line" != @done ] || return 0
        printf '%s\n' "$line"
    done
    return 1
}}
"""


def runnable_pages() -> list[object]:
    """Pages with something to run; those that start Spark are marked so."""
    cases: list[object] = []
    for page in pages():
        text = "\n".join(block.text for block in blocks(page) if block.runs)
        marks = [pytest.mark.spark, pytest.mark.slow] if "spark" in text else []
        if text:
            cases.append(pytest.param(page, id=str(page), marks=marks))
    return cases


def as_script(page: Path, port: str, directory: Path) -> tuple[str, dict[str, tuple[Block, str]]]:
    """A page's blocks as one shell script, with a mark before each step; and what each step should print."""
    running = [block for block in blocks(page) if block.runs]
    # A process of its own costs a program an interpreter; with Spark it costs a Java.
    together = sum("spark_session(" in block.text for block in running) > 1
    script, promises = [PROLOGUE, ONE_PROCESS if together else ""], {}
    for block in running:
        steps = [(block.text, "")] if block.language != "console" else block.commands()
        for number, (step, output) in enumerate(steps):
            mark = f"@@ {page}:{block.line}.{number}"
            promises[mark] = (block, output.replace(MQTT_PORT, port))
            step = step.replace(MQTT_PORT, port)
            script.append(f"echo '{mark}'")
            if block.language == "python":
                program = directory / f"block_{block.line}.py"
                program.write_text(step + "\n")
                script.append(f"{'run' if together else 'python'} {program.name}")
            elif step.endswith("&"):
                script += [
                    f"{step[:-1]} >background.out 2>&1 &",
                    f"listening {port}",
                    f"settled background.out {len(output.strip().splitlines())}",
                ]
            else:
                script.append(step)
    return "\n".join(script), promises


def matches(promised: str, printed: str) -> bool:
    """Does the output look as promised? `…` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in promised.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", runnable_pages())
def test_what_a_page_tells_you_to_type_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("COLUMNS", "120")
    with reserved_port() as port:
        script, promises = as_script(page, str(port), tmp_path)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=880,
        )
    assert done.returncode == 0, done.stdout
    marks = re.split(r"^(@@ .+)\n", done.stdout, flags=re.MULTILINE)
    for mark, printed in zip(marks[1::2], marks[2::2], strict=True):
        block, promised = promises[mark]
        assert not promised or matches(promised, printed), (
            f"{block.page}:{block.line} promises\n{promised}\n\nbut prints\n{printed}"
        )


@pytest.mark.parametrize("page", pages(), ids=str)
def test_blocks_that_do_not_run_say_why_and_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for block in blocks(page):
        assert block.language, f"{page}:{block.line}: name the language of the block, `text` if there is none"
        assert block.language in RUNNABLE or block.excuse is None
        wanted = set(re.findall(r"\bmake ([a-z]+)", block.text))
        assert wanted <= targets, f"{page}:{block.line}: no such target: {wanted - targets}"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    nowhere = []
    for text, target in links(page):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = (ROOT / page).parent / path if path else ROOT / page
        if not there.exists() or (anchor and anchor not in anchors(there.resolve().relative_to(ROOT))):
            nowhere.append(f"{page}: {text} -> {target}")
    assert not nowhere, "\n".join(nowhere)


def test_where_to_look_names_things_that_are_there() -> None:
    """A row of the README's table: a task, links to files, and in code style what to look for in the first of them."""
    rows = [
        line
        for line in (ROOT / "README.md").read_text("utf-8").splitlines()
        if line.startswith("|") and "](" in line
    ]
    assert len(rows) > 10
    for row in rows:
        first = re.findall(r"\]\(([^)#]+)\)", row)[0]
        if not first.endswith(".py"):
            continue
        text = (ROOT / first).read_text("utf-8")
        for name in re.findall(r"`(\w+)`", row):
            assert name in text, f"{first} has no {name}"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_files_that_a_page_names_exist(page: Path) -> None:
    folders = "|".join([*PACKAGES, "tests", "docs", "examples"])
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", (ROOT / page).read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=str)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / page).read_text("utf-8"))
    assert [
        f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text("utf-8")
    ] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = [target for _, target in links(Path("docs/decisions/README.md"))]
    assert sorted(listed) == sorted(path.name for path in folder.glob("0*.md"))
