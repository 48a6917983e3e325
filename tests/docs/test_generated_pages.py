"""The pages that are made from the code name every command and every setting."""

import importlib.util
from types import ModuleType

import pytest

from tests.house.tree import ROOT
from timestone_cli.main import COMMANDS
from timestone_cli.server.fronts import installed_fronts
from timestone_cli.settings.serve import catalogue


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    specification = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "generated_pages.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_command_has_its_help_with_all_options(generated: ModuleType) -> None:
    page = generated.commands_page()
    for name in (name for entries in COMMANDS.values() for name in entries):
        assert f"\n## timestone {name}\n" in page
    assert "\n## timestone pipeline status\n" in page
    assert "--mqtt-keep-alive" in page, "explained by --help-all only"
    assert page.count("```") % 2 == 0
    assert max(map(len, page.splitlines())) <= 110


def test_every_setting_is_a_row_with_its_three_spellings(generated: ModuleType) -> None:
    rows = [line for line in generated.settings_page().splitlines() if line.startswith("| `--")]
    settings = [setting for group in catalogue(installed_fronts()).values() for setting in group]
    assert len(rows) == len(settings) > 50
    for row, setting in zip(rows, settings, strict=True):
        assert all(f"`{each}`" in row for each in (setting.option, setting.key, setting.variable))
        assert len(row.replace("\\|", "").split("|")) == 6
