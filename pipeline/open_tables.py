"""The tables of a configuration, ready to be used: which publishers its format has."""

from .config import PipelineConfig
from .delta import DeltaLogs
from .folders import Folders
from .tables import tables_of
from .warehouse import Publisher, Warehouse


def open_tables(config: PipelineConfig) -> Warehouse:
    """The folder of the tables, with whatever shows them to others. Touches nothing yet.

    Raises PipelineError when what the format needs is not installed.
    """
    tables = tables_of(config).all()
    root, delta = config.tables.path, config.tables.format == "delta"
    publishers: list[Publisher] = [Folders(root, tables, keep_replaced=delta)]
    if delta:
        publishers.append(DeltaLogs(root, tables))
    return Warehouse(config.tables, tables, publishers)
