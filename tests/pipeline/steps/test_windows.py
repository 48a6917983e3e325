"""Averages by device and window, compared with plain Python."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from timestone_pipeline import MessageConfig, averages
from timestone_pipeline.steps.windows import all_averages

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 23, 58, 30, tzinfo=UTC)
SCHEMA = "device string, ts timestamp, temperature double, humidity double"


def test_averages_equal_those_of_plain_python(spark: SparkSession) -> None:
    messages = [
        (f"d{number % 3}", START + timedelta(seconds=7 * number), 20.0 + number, 50.0 - number)
        for number in range(60)
    ]
    expected = defaultdict(list)
    for device, at, temperature, humidity in messages:
        for minutes in (1, 5):
            start = at.replace(second=0) - timedelta(minutes=at.minute % minutes)
            expected[minutes, device, start].append((temperature, humidity))

    frame = spark.createDataFrame(messages, SCHEMA)
    rows = all_averages([(1, frame), (5, frame)], MessageConfig()).collect()
    found = {(row["minutes"], row["device"], row["start"].astimezone(UTC)): row for row in rows}
    assert len(found) == len(rows)
    assert set(found) == set(expected)
    for key, values in expected.items():
        row = found[key]
        temperatures, humidities = zip(*values, strict=True)
        assert row["messages"] == len(values)
        assert row["temperature_mean"] == pytest.approx(sum(temperatures) / len(values))
        assert (row["temperature_min"], row["temperature_max"]) == (min(temperatures), max(temperatures))
        assert row["humidity_mean"] == pytest.approx(sum(humidities) / len(values))


def test_missing_measurement_counts_as_a_message_and_not_in_the_mean(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("d", START, 20.0, None), ("d", START, None, None)], SCHEMA)
    (row,) = averages(frame, 1).collect()
    assert (row["messages"], row["temperature_mean"], row["humidity_mean"]) == (2, 20.0, None)
