"""The commands and programs of a page work and print the documented output."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.pages import Block, blocks, pages, ports_of
from tests.house.tree import ROOT
from tests.support.ports import reserved_port
from tests.support.s3_server import s3_server

PROGRAMS = ROOT / "tests" / "support" / "page_programs.py"
PROLOGUE = """\
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
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
    """Return the pages with something to run: each starts processes, some start Spark."""
    cases: list[object] = []
    for page in pages():
        text = "\n".join(block.text for block in blocks(page) if block.runs)
        marks = [pytest.mark.slow, pytest.mark.spark] if "spark" in text else [pytest.mark.slow]
        if text:
            cases.append(pytest.param(page, id=str(page), marks=marks))
    return cases


def as_script(page: Path, port: str, directory: Path) -> tuple[str, dict[str, tuple[Block, str]]]:
    """Return a page's blocks as one shell script, with a mark before each step; and the expected output of each
    step."""
    running = [block for block in blocks(page) if block.runs]
    own_port = next(iter(ports_of(page)), "no port")
    # A process of its own costs a program an interpreter; with Spark it costs a Java.
    together = sum("spark_session(" in block.text for block in running) > 1
    script, promises = [PROLOGUE, ONE_PROCESS if together else ""], {}
    for block in running:
        steps = [(block.text, block.output)] if block.language != "console" else block.commands()
        for number, (step, output) in enumerate(steps):
            mark = f"@@ {page}:{block.line}.{number}"
            promises[mark] = (block, output.replace(own_port, port))
            step = step.replace(own_port, port)
            script.append(f"echo '{mark}'")
            if block.language == "python":
                program = directory / f"block_{block.line}.py"
                program.write_text(step + "\n")
                script.append(f"{'run' if together else 'python'} {program}")
            elif step.endswith("&"):
                # Without waiting, as in a shell into which the whole block is pasted.
                script.append(f"{step[:-1]} >background.out 2>&1 &")
                if output:
                    script.append(f"settled background.out {len(output.strip().splitlines())}")
            else:
                script.append(step)
    return "\n".join(script), promises


def matches(promised: str, printed: str) -> bool:
    """Does the output look as promised? `…` stands for anything, as a line of its own also for no line."""
    promised = re.sub(r"^…\n", "…", promised.strip(), flags=re.MULTILINE)
    pattern = ".*".join(re.escape(part) for part in promised.split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def test_first_program_of_the_readme_needs_no_extra_and_prints_its_documented_output(tmp_path: Path) -> None:
    """It ended in a traceback on a plain install, and counted one of its three records."""
    program, printed = blocks(Path("README.md"))[:2]
    without = "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark', 'pandas', 'argon2']))\n"
    done = subprocess.run(
        [sys.executable, "-c", without + program.text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stderr, done.stdout) == ("", printed.text + "\n")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", runnable_pages())
def test_commands_and_programs_of_a_page_work(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("COLUMNS", "80")
    with reserved_port() as port, contextlib.ExitStack() as stack:
        if any("s3://plant/" in block.text for block in blocks(page) if block.runs):
            server = stack.enter_context(
                s3_server(tmp_path.with_name(f"s3{tmp_path.name[-2:]}"), bucket="plant")
            )
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
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
