"""Sessions that scan in turn: one of them, with few records, until the figures are printed."""

import pytest

from timestone_bench import spark_sessions

pytestmark = pytest.mark.spark


def test_prints_the_rate_of_each_session(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_sessions, "CASES", ("register",))
    monkeypatch.setattr(spark_sessions, "WARM_UP", 0)
    spark_sessions.main(100, 1)
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["session", "log", "Parquet", "count", "of", "Parquet"]
    assert row.split()[0] == "register" and all(float(one) > 0 for one in row.split()[1:])
