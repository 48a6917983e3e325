"""Opening touches nothing, so that a look at tables that are not there leaves no folder."""

from pathlib import Path

from timestone_pipeline import PipelineConfig, TablesConfig, open_tables


def test_opening_touches_nothing(tmp_path: Path) -> None:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=tmp_path / "tables")))
    assert warehouse.ledger.state().number == 0
    assert not (tmp_path / "tables").exists()
