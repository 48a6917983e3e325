import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

import timestone
from mqtt_front.kernel import loops as mqtt_loops
from tests.cli.processes import COMMAND
from tests.cli.processes import timestone as command
from timestone.kernel import loops
from timestone_cli.main import COMMANDS, main
from timestone_cli.main import timestone as timestone_group

NAMES = [name for entries in COMMANDS.values() for name in entries]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_and_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    for heading, entries in COMMANDS.items():
        assert f"\n{heading}:\n" in out
        for name, entry in entries.items():
            assert f"  {name} " in out
            assert entry.summary in out


def test_the_page_of_the_command_line_names_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    assert [name for name in NAMES if f"| [`{name}`](" not in page] == []


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, with those of groups."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from all_commands(inner, (*path, name))


@pytest.mark.parametrize("path", list(all_commands(timestone_group)), ids=" ".join)
def test_help_of_each_command_fits_80_columns(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*path, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(" ".join(["Usage: timestone", *path]))
    assert "--debug" in out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    commands = out.partition("Commands:")[2].partition("Options:")[0]
    assert "..." not in commands, "a summary fits its line"
    assert "VALUE " not in out.replace("SETTING=VALUE", ""), "an option says what kind of value it takes"


@pytest.mark.parametrize("name", NAMES)
def test_help_of_each_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "\nExamples:\n" in capsys.readouterr().out


def imported_by(option: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], option], capture_output=True, check=True
    )
    return {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}


def test_version_imports_kernels_and_no_server() -> None:
    imported = imported_by("--version")
    assert {"timestone.kernel.loops", "mqtt_front.codec.scan"} <= imported
    assert not imported & {"mqtt_front.front", "asyncio", "ssl", "rich", "pyarrow"}


def test_help_imports_nothing_that_only_commands_need() -> None:
    """It answers within 40 ms of a bare Python (`timestone bench startup` measures it)."""
    imported = imported_by("--help")
    assert "timestone_cli.group" in imported
    assert not imported & {
        "timestone",
        "numpy",
        "pyarrow",
        "pyspark",
        "rich",
        "sqlite3",
        "asyncio",
        "ssl",
        "mqtt_front",
    }


def test_version_says_which_kernels_run_and_why() -> None:
    version, engine, mqtt = command("--version").stdout.splitlines()
    assert version.startswith("timestone 0.")
    assert engine == f"engine kernel {'pure Python: ' + loops.REASON if loops.REASON else 'compiled'}"
    assert mqtt == f"MQTT kernel {'pure Python: ' + mqtt_loops.REASON if mqtt_loops.REASON else 'compiled'}"
    pure = command("--version", environment={"TIMESTONE_PURE": "1"}).stdout.splitlines()
    why = "pure Python: TIMESTONE_PURE is set"
    assert pure == [version, f"engine kernel {why}", f"MQTT kernel {why}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        (("timestone", "mqtt_front"), ["engine kernel {}", "MQTT kernel {}"]),
        (("timestone",), ["engine kernel {}", "MQTT kernel compiled"]),
        (("mqtt_front",), ["engine kernel compiled", "MQTT kernel {}"]),
    ],
)
@pytest.mark.skipif(bool(loops.REASON or mqtt_loops.REASON), reason="the compiled kernels were not built")
def test_version_names_the_kernel_that_was_not_built(hidden: Sequence[str], expected: Sequence[str]) -> None:
    names = [f"{package}.kernel._kernel" for package in hidden]
    program = f"import sys; sys.modules.update(dict.fromkeys({names}))\n"
    program += "from timestone_cli.main import main; main(['--version'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    why = "pure Python: no compiled kernel was built"
    assert done.stdout.splitlines()[1:] == [line.format(why) for line in expected]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["raed"], "timestone: no such command 'raed'; did you mean 'read'? (see `timestone --help`)"),
        (["zzz"], "timestone: no such command 'zzz' (see `timestone --help`)"),
        (["--bogus"], "timestone: no such option '--bogus' (see `timestone --help`)"),
        (["read", "data"], "timestone read: missing argument 'LOG' (see `timestone read --help`)"),
        (
            ["read", "data", "log", "--cuont", "3"],
            "timestone read: no such option '--cuont'; did you mean '--count'? (see `timestone read --help`)",
        ),
        (
            ["read", "data", "log", "--cuont=3"],
            "timestone read: no such option '--cuont'; did you mean '--count'? (see `timestone read --help`)",
        ),
        (["read", "data", "log", "--coun", "3"], "timestone read: no such option '--coun'; did you mean"),
        (
            ["read", "data", "log", "--count"],
            "timestone read: option '--count' requires an argument (see `timestone read --help`)",
        ),
        (["read", "data", "log", "extra"], "timestone read: got unexpected extra argument (extra)"),
        (
            ["read", "data", "log", "--format", "xml"],
            "timestone read: invalid value for '--format': 'xml' is not one of 'json'",
        ),
        (
            ["read", "data", "log", "--topic", "a/#/b"],
            "timestone read: invalid value for '--topic': topic filter 'a/#/b'",
        ),
        (["read", "", "log"], "timestone read: invalid value for 'DIR': expected a path, got an empty text"),
        (["append", "data", "log", "--topic", "a/+"], "timestone append: invalid value for '--topic': topic"),
        (["bench"], "timestone bench: missing command (see `timestone bench --help`)"),
        (["bench", "mqqt"], "timestone bench: no such command 'mqqt'; did you mean 'mqtt'?"),
        (
            ["bench", "segment-throughput", "--count", "0"],
            "timestone bench segment-throughput: invalid value for '--count': expected a whole number from 1",
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
from timestone_cli.main import COMMANDS, Entry, main
COMMANDS["Records"]["read"] = Entry("interrupted_import", "")
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


@pytest.mark.slow
def test_a_reader_that_has_left_ends_the_command_quietly(tmp_path: Path) -> None:
    command("append", "data", "log", stdin=b"record\n" * 100_000, cwd=tmp_path)
    shell = f"{sys.executable} -m timestone_cli read data log | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.splitlines()[1:] == ["141"]
    assert done.stderr == ""
