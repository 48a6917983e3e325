"""Search for messages that repeat another: device and sequence are the same, and it arrived a short time later.

Two steps, by keys and times of arrival alone. Tasks look through the messages of the tables for those with a key of
the new ones, of which few have any; `repeated` then compares the new ones with these and with each other. In DuckDB,
which does so for a tenth of the time that Spark takes to bring equal keys together."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..delta.data_file import RECORD, Batches, Read
from ..delta.query import duckdb_module

KEY = ("device", "sequence")
"""Names of the two keys here, the same for all names of fields."""
MOMENT = "moment"
"""Time of arrival in microseconds since 1970."""
REACHED = pa.schema([("log", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])

_SEEN = """
SELECT device, sequence, max(moment) AS moment
FROM messages SEMI JOIN keys USING (device, sequence) {below}
WHERE moment >= {since_us}
-- Of those before all new ones, the newest is the nearest.
GROUP BY device, sequence, CASE WHEN moment > {first_us} THEN moment END
"""
_BELOW = """
SEMI JOIN reached ON messages.log = reached.log AND messages."partition" = reached."partition"
    AND messages."offset" < reached."offset"
"""
_REPEATED = """
WITH doubtful AS (
    SELECT device, sequence FROM fresh GROUP BY device, sequence HAVING count(*) > 1
    UNION ALL SELECT device, sequence FROM seen
), candidates AS (
    SELECT * FROM fresh SEMI JOIN doubtful USING (device, sequence)
    UNION ALL BY NAME SELECT * FROM seen
), neighbours AS (
    SELECT number, moment,
        lag(moment) OVER nearby AS previous,
        min(CASE WHEN number IS NULL THEN moment END)
            OVER (nearby ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS following
    FROM candidates
    WINDOW nearby AS (
        PARTITION BY device, sequence ORDER BY moment, log NULLS FIRST, "partition", "offset"
    )
)
SELECT number FROM neighbours
WHERE number IS NOT NULL AND (moment - previous <= {within_us} OR following - moment <= {within_us})
ORDER BY number
"""


def keyed(rows: pa.RecordBatch | pa.Table, names: tuple[str, str], *others: str) -> pa.Table:
    """Return the columns KEY, which `rows` has as `names`, and MOMENT of the messages that have a sequence, with
    `others` as they are."""
    columns = [*(rows.column(name) for name in names), rows.column("received_at").cast(pa.int64())]
    found = pa.table([*columns, *(rows.column(name) for name in others)], names=[*KEY, MOMENT, *others])
    return found.filter(pc.is_valid(found[KEY[1]]))


@dataclass(frozen=True, slots=True)
class Search:
    """Search for messages with the keys of others, for tasks."""

    names: tuple[str, str]
    """Names that KEY has in the files."""
    keys: pa.Table
    since_us: int
    """Messages that arrived before are too old to be repeated."""
    first_us: int
    """Arrival of the first of the new messages."""
    reached: pa.Table | None = None
    """RECORD of the first record of each partition that does not count; None: all count."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that it reads."""
        return (*self._others, "received_at", *self.names)

    @property
    def _others(self) -> tuple[str, ...]:
        return () if self.reached is None else RECORD

    def of(self, read: Read, schema: pa.Schema) -> Read:
        """Return a function from paths and partition values to the KEY and MOMENT of the messages found there; of those
        of a key before the first new message only the newest. read: returns rows of `schema`."""
        below = "" if self.reached is None else _BELOW
        sql = _SEEN.format(below=below, since_us=self.since_us, first_us=self.first_us)
        form = keyed(schema.empty_table(), self.names, *self._others).schema

        def find(paths: Batches) -> Batches:
            messages = (
                one for rows in read(paths) for one in keyed(rows, self.names, *self._others).to_batches()
            )
            with duckdb_module().connect(config={"threads": 1}) as database:  # a task has one core
                database.register("messages", pa.RecordBatchReader.from_batches(form, messages))
                database.register("keys", self.keys)
                if self.reached is not None:
                    database.register("reached", self.reached)
                found = database.sql(sql).to_arrow_table()
            yield from found.cast(pa.schema([form.field(name) for name in (*KEY, MOMENT)])).to_batches()

        return find


def repeated(fresh: pa.Table, seen: pa.Table, within_us: int) -> pa.Array:
    """Return the numbers of those rows of `fresh` (KEY, MOMENT, RECORD) that arrived at most `within_us` after one
    before with the same key, or as near to one of `seen` (KEY, MOMENT)."""
    numbers = pa.array(range(fresh.num_rows), pa.int64())
    with duckdb_module().connect() as database:
        database.register("fresh", fresh.append_column("number", numbers))
        database.register("seen", seen)
        found = database.sql(_REPEATED.format(within_us=within_us)).to_arrow_table()
    return found["number"].combine_chunks()
