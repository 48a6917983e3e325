"""Opening changes no file, so that reading the state of missing tables leaves no folder."""

from pathlib import Path

from timestone_pipeline import PipelineConfig, TablesConfig, open_tables


def test_opening_tables_changes_no_file(tmp_path: Path) -> None:
    warehouse = open_tables(PipelineConfig(tables=TablesConfig(path=tmp_path / "tables")))
    assert warehouse.ledger.state().number == 0
    assert not (tmp_path / "tables").exists()
