"""A stream with a wrong option. That each version of Spark then names the option is in `test_spark_versions.py`."""

from collections.abc import Callable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.reading.refused_reader import RefusedStreamReader

READER = RefusedStreamReader(InvalidOption("invalid option"))
CALLS: dict[str, Callable[[], object]] = {
    "start": READER.initialOffset,
    "end, before Spark 4.2": READER.latestOffset,
    "end, since Spark 4.2": lambda: READER.latestOffset({}, ReadAllAvailable()),
    "tasks": lambda: READER.partitions({}, {}),
    "task": lambda: READER.read(None),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_raises_the_error(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidOption, match="invalid option"):
        call()


def test_it_can_be_stopped() -> None:
    READER.stop()
