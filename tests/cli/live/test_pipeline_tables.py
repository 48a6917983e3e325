from pathlib import Path

from tests.pipeline.test_dead_letters import commit
from timestone_cli.live.pipeline_tables import PipelineTables
from timestone_console.api.pipeline import Pipeline
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables


def test_tables_are_plain_values_of_the_shape_that_the_console_has(tmp_path: Path) -> None:
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data"), logs=("mqtt",)),
        tables=TablesConfig(path=str(tmp_path / "tables")),
    )
    commit(open_tables(config), range(3))
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'[source]\npath = "{tmp_path / "data"}"\nlogs = ["mqtt"]\n[tables]\npath = "{tmp_path / "tables"}"\n'
    )
    tables = PipelineTables(file)
    found = tables.pipeline()
    assert set(Pipeline.__struct_fields__) == set(found)
    assert found["reasons"] == {"no_device": 2, "not_json": 1} and found["history"]
    letters = tables.dead_letters("", 2, None)
    assert [one["offset"] for one in letters["letters"]] == [2, 1] and letters["next"]
    assert letters["fields"] == dict(config.message.fields)
