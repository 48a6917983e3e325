import json

import pytest

from tests.bench.cluster.figures import TAKEN
from timestone_bench.cluster.cases import CASES
from timestone_bench.cluster.goals import FIGURES, GOALS, Sheet, number, rows, sheets


def goal(what: str) -> tuple[float | None, bool]:
    (found,) = [one for one in GOALS if one.what == what]
    value = found.value(TAKEN)
    return value, value is not None and found.is_met(value)


def test_ratio_is_the_median_of_the_ratios_of_the_turns() -> None:
    found = {(row.case, row.figure): row for row in rows(TAKEN)}
    ratio = found["qos1 cluster", "per_s"].ratio
    assert ratio is not None and (ratio.median, ratio.low, ratio.high) == (0.45, 0.4, 0.5)
    assert found["qos1 single", "per_s"].ratio is None
    (alone,) = [row for row in rows({"qos1 nats": TAKEN["qos1 nats"]}) if row.figure == "per_s"]
    assert alone.ratio is None  # its peer failed
    json.dumps([row.to_json() for row in rows(TAKEN)])


@pytest.mark.parametrize(
    ("what", "value", "met"),
    [
        ("QoS 1 ÷ the better of NATS and RabbitMQ", 3.0, False),  # 4 times NATS, then twice RabbitMQ
        ("QoS 1 ÷ single node", 0.45, True),
        ("PUBACK, p99 ÷ own p50", 6.0, False),
        ("kill of the leader, median, s", 5.0, False),
        ("kill of the leader, longest, s", 7.0, False),
        ("appends ÷ Kafka, flushed", None, False),
    ],
)
def test_goal_compares_with_the_best_of_the_others(what: str, value: float | None, met: bool) -> None:
    assert goal(what) == (value, met)


def test_goals_and_headings_exist() -> None:
    for one in GOALS:
        assert {one.case, *one.others} <= set(CASES)
        assert {one.figure, one.other_figure or one.figure} <= set(FIGURES)


def test_sheets_are_tables_of_markdown() -> None:
    figures, reached = sheets(TAKEN)
    assert figures.lines[2][:4] == ["qos1 cluster", "messages/s", "325", "0.45"]
    assert reached.lines[1] == ["C2: QoS 1 ÷ single node", "≥ 0.25", "0.450", "yes"]
    assert Sheet(("a", "b"), [["x", "1"]]).markdown() == "| a | b |\n| --- | ---: |\n| x | 1 |"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.500"), (2.0, "2.00"), (20.0, "20.0"), (2000.0, "2,000")]
)
def test_number_has_three_digits_or_more(value: float, shown: str) -> None:
    assert number(value) == shown
