"""Rows of a query as JSON lines and as a table."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from timestone_cli.output.query_rows import print_rows

ROWS = pa.table(
    {"n": [1, None], "at": [datetime(2026, 1, 1, tzinfo=UTC)] * 2, "value": [b"\xff\x1b[2J", "ü".encode()]}
)


@pytest.mark.parametrize(
    ("as_json", "second"),
    [
        (True, ['{"n": null, "at": "2026-01-01T00:00:00+00:00", "value": "ü"}']),
        (False, ["2026-01-01T00:00:00+00:00  ü"]),
    ],
)
def test_each_row_is_printed(capsys: pytest.CaptureFixture[str], as_json: bool, second: list[str]) -> None:
    print_rows(ROWS.to_reader(), as_json=as_json)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines[-1:]] == second
    assert ("\\\\xff\\u001b[2J" if as_json else "\\xff\\x1b[2J") in lines[-2]
