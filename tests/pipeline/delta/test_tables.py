"""The columns of the tables follow from the message."""

from timestone_pipeline import MessageConfig, PipelineConfig
from timestone_pipeline.delta.tables import tables_of


def test_columns_follow_from_the_fields_of_a_message() -> None:
    fields = {"id": "string", "n": "int", "at": "timestamp", "volts": "float"}
    config = PipelineConfig(message=MessageConfig(fields=fields, device="id", sequence="n", time="at"))
    tables = tables_of(config)
    assert tables.clean.ddl.endswith("`id` string, `n` int, `at` timestamp, `volts` float, ingest_date date")
    assert tables.clean.bounds == ("at", "received_at")
    assert "value binary, problem string, `id` string, `n` int, `at` timestamp" in tables.dead_letters.ddl
    assert tables.windows.ddl == (
        "`id` string, start timestamp, messages bigint, "
        "`volts_mean` double, `volts_min` float, `volts_max` float, minutes int"
    )
    assert (tables.windows.partition_column, tables.last.partition_column) == ("minutes", None)
    assert list(tables.by_name()) == [table.name for table in tables.all()]
