"""Man pages read by man, and completion by shells: bash and zsh on a terminal with the Tab key, fish by `complete`."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import timestone as timestone_engine
from tests.support.terminal import OnTerminal
from timestone_cli.main import timestone
from timestone_cli.share_files import ManPage, man_pages, write_share_files

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("share")
    write_share_files(directory)
    return directory


def as_plain_text(page: str) -> str:
    """Return the text of a man page without requests and escapes, in one line."""
    text = "\n".join(
        line for line in page.splitlines() if not line.startswith((".TP", ".PP", ".nf", ".fi", ".in"))
    )
    for roff, plain in {
        r"\fB": "", r"\fR": "", r"\&": "", r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ti": "~", r"\(ha": "^",
        r"\(dq": '"', r"\e": "\\",
    }.items():  # fmt: skip
        text = text.replace(roff, plain)
    text = re.sub(r"\\\[u([0-9A-F]{4,})\]", lambda match: chr(int(match[1], 16)), text)
    return " ".join(text.split())


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def test_every_command_has_a_man_page_that_its_group_points_to() -> None:
    pages = dict(man_pages())
    for command in timestone.entries:
        assert f"timestone-{command}.1" in pages
        assert f".BR timestone\\-{command} (1)" in pages["timestone.1"]
    assert {"timestone-pipeline-run.1", "timestone-bench-mqtt.1"} <= set(pages)


@pytest.mark.parametrize("name", ["serve", "read", "configure", "pub"])
def test_man_page_has_the_whole_text_of_help(name: str) -> None:
    text = as_plain_text(dict(man_pages())[f"timestone-{name}.1"])
    group = click.Context(timestone, info_name="timestone")
    command = timestone.get_command(group, name)
    assert command is not None
    ctx = click.Context(command, group, info_name=name, **command.context_settings)
    for parameter in command.get_params(ctx):
        term, help_text = parameter.get_help_record(ctx) or ("", "")
        assert term in text and " ".join(help_text.split()) in text
    assert command.epilog is not None
    for line in command.epilog.splitlines():
        if not line.endswith(":"):
            assert " ".join(line.removeprefix("Exit codes: ").split()) in text


def test_a_command_whose_packages_are_missing_has_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [name for name in sys.modules if name.startswith(("timestone_bench.spark", "pyspark."))]:
        monkeypatch.delitem(sys.modules, name)
    pages = dict(man_pages())
    assert "timestone-bench-spark.1" not in pages and "timestone-bench-mqtt.1" in pages


def test_text_that_looks_like_roff_is_printed_as_it_is() -> None:
    page = ManPage("timestone x", "Do it.")
    page.write_text(".SH is 'kept'\n'so' is \\fB and …")
    assert page.getvalue().splitlines()[-2:] == [
        r"\&.SH is \(aqkept\(aq",
        r"\(aqso\(aq is \efB and \[u2026]",
    ]


@pytest.mark.slow
@needs("man")
def test_man_shows_every_page_without_a_warning_in_80_columns(share: Path) -> None:
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    for page in sorted((share / "man" / "man1").iterdir()):
        shown = subprocess.run(
            ["man", "--warnings", "-l", page], capture_output=True, text=True, timeout=60, env=environment
        )
        assert (shown.returncode, shown.stderr) == (0, ""), page.name
        assert [line for line in shown.stdout.splitlines() if len(line) > 80] == [], page.name
        assert shown.stdout.count("\nNAME\n") == 1 and "\nSYNOPSIS\n" in shown.stdout


TYPED = [
    [("timestone passw", "d "), ("--hel", "p "), ("\n", "Usage: timestone passwd")],  # a command, an option
    [("timestone append a b --ack wri", "tten "), ("--help\n", "Usage: timestone append")],  # a word
    [("timestone pipeline statu", "s "), ("--help\n", "Usage: timestone pipeline status")],
    [("timestone inspect a-st", "ore"), ("/ --json\n", '"exit_code"')],  # a path
]
"""Lines in pieces: what is typed, with the Tab key after it, and what the terminal shows then."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "startup"),
    [
        pytest.param(
            ["bash", "--norc", "-i"],
            "source {share}/bash-completion/completions/timestone",
            marks=needs("bash"),
        ),
        pytest.param(
            ["zsh", "-f", "-i"],
            "fpath=({share}/zsh/site-functions $fpath); autoload -U compinit; compinit -D -u",
            marks=needs("zsh"),
        ),
    ],
    ids=["bash", "zsh"],
)
def test_tab_completes_commands_options_words_and_paths(
    shell: list[str], startup: str, share: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timestone_engine.open(tmp_path / "a-store").close()
    for name, value in {"PATH": PATH, "TERM": "dumb", "PS1": "$ ", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with OnTerminal(shell, tmp_path) as terminal:
        terminal.type(startup.format(share=share) + "; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, shown in itertools.chain.from_iterable(TYPED):
            terminal.type(typed if typed.endswith("\n") else f"{typed}\t")
            terminal.wait_for(shown if typed.endswith("\n") else typed + shown)


@pytest.mark.slow
@needs("fish")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("timestone passw", "passwd"),
        ("timestone readers", "readers\tShow, release or forget named readers."),
        ("timestone passwd --scr", "--scram"),
        ("timestone append data telemetry --ack wri", "written"),
        ("timestone inspect a-st", "a-store/"),
    ],
)
def test_fish_completes_from_the_folder_of_vendors(
    line: str, completed: str, share: Path, tmp_path: Path
) -> None:
    (tmp_path / "a-store").mkdir()
    printed = subprocess.run(
        ["fish", "-c", "complete -C $argv[1]", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": PATH, "HOME": str(tmp_path), "XDG_DATA_DIRS": str(share)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert [each.partition("\t")[0] for each in printed.stdout.splitlines()] == [completed.partition("\t")[0]]
    assert completed in printed.stdout
