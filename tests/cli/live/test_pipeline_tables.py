from pathlib import Path

from tests.pipeline.delta.test_dead_letters import commit, letters_of
from tests.support import table_files
from timestone_cli.live.pipeline_tables import PipelineTables
from timestone_console.api.pipeline import Pipeline
from timestone_pipeline import PipelineConfig, SourceConfig, TablesConfig, open_tables


def test_tables_are_plain_values_of_the_shape_that_the_console_has(tmp_path: Path) -> None:
    config = PipelineConfig(
        source=SourceConfig(path=str(tmp_path / "data"), logs=("mqtt",)),
        tables=TablesConfig(path=str(tmp_path / "tables")),
    )
    warehouse = open_tables(config)
    commit(warehouse, range(3))
    bronze = warehouse.tables.bronze
    with warehouse.work(1) as work:
        table_files.write(work, bronze, letters_of(range(3)), "2026")
        work.commit(warehouse.state().of(bronze), {"": 1})
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'[source]\npath = "{tmp_path / "data"}"\nlogs = ["mqtt"]\n[tables]\npath = "{tmp_path / "tables"}"\n'
    )
    tables = PipelineTables(file)
    found = tables.pipeline()
    assert set(Pipeline.__struct_fields__) == set(found)
    assert found["reasons"] == {"no_device": 2, "not_json": 1} and found["history"]
    newest = found["history"][0]
    assert newest["rows"] == 3 and newest["took_s"] >= 0
    letters = tables.dead_letters("", 2, None)
    assert [one["offset"] for one in letters["letters"]] == [2, 1] and letters["next"]
    assert letters["fields"] == dict(config.message.fields)
