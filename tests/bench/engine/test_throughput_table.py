import pytest

from tests.bench.results import RESULT
from timestone_bench.engine.throughput_table import print_result


def test_the_table_shows_head_rows_and_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    print_result(RESULT)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert "fdatasync of 4 KiB 1.50 ms" in out
    assert "ack written" in out
    (raw,) = (line for line in lines if line.startswith("pwrite 1"))
    (ours,) = (line for line in lines if line.startswith("  append 1"))
    assert raw.split()[2:5] == ["5,000", "5.0", "2.5"]
    assert ours.split()[2:7] == ["2,000", "2.0", "1.2", "0.50", "250.00"]
    assert lines[-1] == "warning: a warning"


@pytest.mark.parametrize(("width", "pieces"), [(80, 2), (110, 1), (200, 1)])
def test_a_narrow_terminal_gets_the_percentiles_in_a_second_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, pieces: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_result(RESULT)
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line.startswith("row")]
    assert len(heads) == pieces
    assert "".join(heads).count(" us") == 5
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width
