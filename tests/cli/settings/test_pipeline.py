"""The TOML file of a pipeline: its settings, and the error when it says something else."""

from pathlib import Path

import pytest

from timestone_cli.errors import UsageError
from timestone_cli.settings.pipeline import read_pipeline_config
from timestone_pipeline import PipelineConfig

FILE = """
[source]
path = "plant"
logs = ["mqtt"]
records_per_batch = 1000

[message]
device = "id"
fields = {id = "string", seq = "bigint", ts = "timestamp", volts = "double"}

[windows]
minutes = [1, 60]
lateness_s = "2 min"

[spark.conf]
"spark.driver.memory" = "2g"
"""


def read(folder: Path, text: str) -> PipelineConfig:
    file = folder / "plant.toml"
    file.write_text(text)
    return read_pipeline_config(file)


def test_a_file_says_what_is_different(tmp_path: Path) -> None:
    config = read(tmp_path, FILE)
    assert (config.source.path, config.source.logs, config.source.records_per_batch) == (
        "plant",
        ("mqtt",),
        1000,
    )
    assert config.message.measurements == ("volts",)
    assert (config.windows.minutes, config.windows.lateness_s) == ((1, 60), 120)
    assert config.spark.conf == {"spark.driver.memory": "2g"}
    assert config.tables == PipelineConfig().tables


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[window]\nminutes = [1]",
            r"plant.toml: unknown key 'window.minutes'; did you mean 'windows.minutes'\?",
        ),
        (
            "[tables]\nformat = 'delta'",
            "plant.toml: unknown key 'tables.format'",
        ),
        (
            "[source]\nrecords_per_batch = 0",
            "source.records_per_batch in .*: expected a number from 1, got 0",
        ),
        ("[message]\ndevice = 'dev'", "plant.toml: invalid message.device: expected one of message.fields"),
        ("[message", "plant.toml: "),
    ],
)
def test_a_mistake_is_named_with_its_key_and_file(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(tmp_path, text)


def test_without_a_file_it_is_the_defaults_or_the_file_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_pipeline_config(None) == PipelineConfig()
    (tmp_path / "pipeline.toml").write_text(FILE)
    assert read_pipeline_config(None).message.device == "id"
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file"):
        read_pipeline_config(Path("nowhere.toml"))
