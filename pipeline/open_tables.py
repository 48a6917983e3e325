"""Opening of the tables of a configuration with the publishers of its format."""

from .config import PipelineConfig
from .delta import DeltaLogs
from .folders import Folders
from .tables import tables_of
from .warehouse import Publisher, Warehouse


def open_tables(config: PipelineConfig) -> Warehouse:
    """Return the folder of the tables with its publishers. Touches no file. Raises PipelineError if a package for the
    format is not installed."""
    tables = tables_of(config).all()
    root, delta = config.tables.path, config.tables.format == "delta"
    publishers: list[Publisher] = [Folders(root, tables, keep_replaced=delta)]
    if delta:
        publishers.append(DeltaLogs(root, tables))
    return Warehouse(config.tables, tables, publishers)
