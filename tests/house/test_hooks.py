"""The same checks run before a commit, in an editor and in CI: hooks, settings and scripts follow the Makefile."""

import configparser
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.house.tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")


def test_hooks_are_the_steps_of_make_lint() -> None:
    (steps,) = re.findall(r"^\t@\$\(MAKE\) --jobs --output-sync ([a-z ]+)$", MAKEFILE, re.MULTILINE)
    assert re.findall(r"^ *entry: make ([a-z]+)$", HOOKS, re.MULTILINE) == steps.split()
    assert HOOKS.count("entry:") == HOOKS.count("always_run: true") == len(steps.split())


def test_hooks_need_no_other_repository() -> None:
    assert re.findall(r"repo: (.+)", HOOKS) == ["local"]


def test_editors_and_the_formatter_have_the_same_line_length() -> None:
    editor = configparser.ConfigParser()
    editor.read_string("[top]\n" + (ROOT / ".editorconfig").read_text("utf-8"))
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
    assert editor.getint("*.{py,pyi,pyx}", "max_line_length") == ruff["line-length"]
    assert editor["Makefile"]["indent_style"] == "tab"


@pytest.mark.parametrize("script", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_scripts_are_valid_shell_and_name_files_that_exist(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    named = re.findall(r"\btests/[\w/]+\.py\b", script.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_make_test_and_make_cluster_are_the_whole_suite_and_ci_runs_both() -> None:
    commands = re.findall(r"\$\(PYTEST\).*--reruns 1.* -m (\"not cluster\"|cluster$)", MAKEFILE, re.MULTILINE)
    assert sorted(commands) == ['"not cluster"', "cluster"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall(r"\bmake (cluster|test)$", script, re.MULTILINE) == ["cluster", "test"]


STARTS_NODES = re.compile(
    r"^from (?:tests\.cluster\.(?:log|mqtt|flight|machine)_cluster|timestone_bench\.cluster\.own_cluster) import "
    r"|^from tests\.cluster\.node_processes import [^)]*\bNodeProcess\b",
    re.MULTILINE,
)


def test_each_file_whose_tests_start_nodes_of_a_cluster_has_the_mark_of_make_cluster() -> None:
    texts = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    found = {path: text for path, text in texts.items() if STARTS_NODES.search(text)}
    assert len(found) > 20
    assert [path for path, text in found.items() if "mark.cluster" not in text] == []
