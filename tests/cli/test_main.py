import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import COMMAND
from tests.cli.processes import timestone as command
from timestone_cli.main import COMMANDS, main


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_and_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(words)
    except SystemExit as stop:
        code = stop.code
    out = capsys.readouterr().out
    assert code == 0
    assert "examples:" in out
    for name, entry in COMMANDS.items():
        assert f"    {name} " in out
        assert entry.summary.split()[0] in out


def test_the_page_of_the_command_line_names_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    assert [name for name in COMMANDS if f"| [`{name}`](" not in page] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"timestone {name}" in out
    assert "examples:" in out
    assert "--debug" in out
    assert max(map(len, out.splitlines())) <= 100


def test_help_imports_nothing_but_the_parser() -> None:
    """It answers in 150 ms (`timestone bench startup` measures it), because it does not load what commands need."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"], capture_output=True, check=True
    )
    imported = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert "timestone_cli.parser" in imported
    assert not imported & {
        "timestone",
        "numpy",
        "pyarrow",
        "pyspark",
        "sqlite3",
        "asyncio",
        "ssl",
        "mqtt_front",
    }


def test_version() -> None:
    assert command("--version").stdout.startswith("timestone 0.")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["raed"], "timestone: no command 'raed'; did you mean 'read'?"),
        (["zzz"], f"timestone: no command 'zzz'; there are {', '.join(COMMANDS)}"),
        (["--bogus"], "timestone: unknown argument '--bogus' (see `timestone --help`)"),
        (
            ["read", "data"],
            "timestone read: the following arguments are required: LOG (see `timestone read --help`)",
        ),
        (
            ["read", "data", "log", "--cuont", "3"],
            "timestone read: unknown argument '--cuont'; did you mean --count?",
        ),
        (
            ["read", "data", "log", "extra"],
            "timestone read: unknown argument 'extra' (see `timestone read --help`)",
        ),
        (
            ["read", "data", "log", "--format", "xml"],
            "timestone read: argument --format: invalid choice: 'xml'",
        ),
        (
            ["read", "data", "log", "--topic", "a/#/b"],
            "timestone read: argument --topic: topic filter 'a/#/b'",
        ),
        (["append", "data", "log", "--topic", "a/+"], "timestone append: argument --topic: topic 'a/+'"),
        (["bench"], "timestone bench: the following arguments are required: BENCHMARK"),
        (
            ["bench", "segment-throughput", "--count", "0"],
            "timestone bench segment-throughput: argument --count: 0",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_64(words: list[str], complaint: str, tmp_path: Path) -> None:
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 64
    assert done.stdout == ""
    assert done.stderr.startswith(complaint)
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_line_and_with_debug_a_traceback(tmp_path: Path) -> None:
    done = command("read", "nowhere", "log", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "timestone read: nowhere is not a Timestone store: it does not exist\n",
    )
    for words in (["--debug", "read", "nowhere", "log"], ["read", "nowhere", "log", "--debug"]):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("Traceback")


def test_an_error_of_the_system_names_the_file(tmp_path: Path) -> None:
    done = command("append", "data", "log", "--file", "nowhere.txt", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "timestone append: nowhere.txt: No such file or directory\n")


def test_a_bug_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timestone, "view", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["read", str(tmp_path), "log"])


INTERRUPTED = """
import sys
from timestone_cli.main import COMMANDS, Command, main
COMMANDS["read"] = Command("interrupted_import", "")
sys.exit(main(["read", "data", "x"]))
"""


def test_an_interrupt_while_it_is_being_imported_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "interrupted_import.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_reader_that_has_left_ends_the_command_quietly(tmp_path: Path) -> None:
    command("append", "data", "log", stdin=b"record\n" * 100_000, cwd=tmp_path)
    shell = f"{sys.executable} -m timestone_cli read data log | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines()[1:] == ["141"]
    assert done.stderr == ""
