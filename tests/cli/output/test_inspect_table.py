from pathlib import Path

import pytest

import timestone
from tests.cli.conditions import clean, damaged, torn
from timestone.repair.inspection import inspect_store
from timestone_cli.output.inspect_table import print_report


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the path of a test's directory is, the line with it is not broken."""
    monkeypatch.setenv("COLUMNS", "160")


def printed(
    path: Path, capsys: pytest.CaptureFixture[str], *, deep: bool = False, segments: bool = True
) -> list[str]:
    print_report(inspect_store(path, deep=deep), segments=segments)
    return capsys.readouterr().out.splitlines()


def test_a_log_and_its_segments_are_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean(tmp_path)
    lines = printed(tmp_path, capsys)
    assert lines[0] == f"{tmp_path}: 1 log, not owned by any process"
    assert lines[2].startswith(
        "telemetry-0 offsets [0, 1500), all synced, 1,500 records, 15.0 KiB, 5 topics, epoch 0"
    )
    head = lines.index(next(line for line in lines if line.split()[:2] == ["base", "next"]))
    rows = [line.split() for line in lines[head + 2 : head + 4]]
    assert [row[:3] for row in rows] == [["0", "1000", "1,000"], ["1000", "1500", "500"]]
    assert "lost" not in lines[head]
    assert lines[-1].startswith("clean")


def test_each_log_is_one_line_without_its_segments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(tmp_path)
    with timestone.open(tmp_path, sync_interval_ms=60_000) as store:
        store.log("empty")
        store.log("live").append_many([b"x"] * 5, ack="written")
        for width in (80, 160):
            monkeypatch.setenv("COLUMNS", str(width))
            lines = printed(tmp_path, capsys, segments=False)
            head = lines.index(next(line for line in lines if line.split()[:2] == ["log", "start"]))
            rows = [line.split() for line in lines[head + 2 : head + 5]]
            assert [row[:4] for row in rows] == [
                ["empty-0", "0", "0", "0"],
                ["live-0", "0", "5", "5"],
                ["telemetry-0", "0", "1500", "1,500"],
            ]
            assert [row[-1] for row in rows] == ["empty", "0", "sealed"]
            assert lines[head + 3].endswith("unclosed, synced to 0")
            assert rows[2][-2] == "2", "segments"
            assert ("epoch" in lines[head]) is (width == 160)
            assert all(len(line) <= width for line in lines[1:])


def test_log_with_a_damaged_segment_is_marked_on_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(tmp_path)
    lines = printed(tmp_path, capsys, deep=True, segments=False)
    assert any(line.split()[0] == "telemetry-0" and line.endswith("damaged") for line in lines if line)
    assert "offset 1003" in "\n".join(lines)


def test_a_loss_has_a_column_and_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn(tmp_path / "torn")
    text = "\n".join(printed(tmp_path / "torn", capsys))
    assert "lost\n" in text
    assert "10 bytes\n" in text
    assert "torn tail: after offset 500" in text
    damaged(tmp_path / "damaged")
    assert "1 damaged" in "\n".join(printed(tmp_path / "damaged", capsys, deep=True))


def test_named_readers_are_listed_with_their_lag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with timestone.open(tmp_path) as store:
        log = store.log("a")
        log.append_many([b"x"] * 5)
        reader = log.reader(name="billing")
        reader.read(max_records=2)
        reader.commit()
    lines = printed(tmp_path, capsys)
    head = lines.index(next(line for line in lines if line.split()[:2] == ["named", "reader"]))
    assert lines[head + 2].split()[:4] == ["billing", "a-0", "2", "3"]


def test_unsynced_records_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with timestone.open(tmp_path, sync_interval_ms=60_000) as store:
        store.log("a").append_many([b"x"] * 5, ack="written")
        assert any("offsets [0, 5), synced to 0" in line for line in printed(tmp_path, capsys))


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_nothing_is_cut_off_at_any_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Narrow, the columns that matter least are left out."""
    damaged(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(tmp_path, capsys, deep=True)
    assert not any("…" in line for line in lines)
    (head,) = (line for line in lines if line.split()[:2] == ["base", "next"])
    assert ("index" in head) is (width >= 140)
    (row,) = (line for line in lines if line.split()[:3] == ["1000", "1500", "500"])
    assert "damaged" in row
    assert len(row) <= width


def test_no_line_ends_in_blanks_and_names_are_not_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean(tmp_path)
    (tmp_path / "telemetry-0" / "[red]stranger[").touch()
    lines = printed(tmp_path, capsys)
    assert all(line == line.rstrip() for line in lines)
    assert any("[red]stranger[" in line for line in lines)


def test_compressed_segments_have_what_they_take_beside_their_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean(tmp_path)
    assert "stored" not in "\n".join(printed(tmp_path, capsys))
    with timestone.open(tmp_path) as store:
        store.maintenance.stop()
        store.log("telemetry").configure(compression="zstd")
        assert store.log("telemetry").apply_compression() > 0
    lines = printed(tmp_path, capsys)
    assert " stored), 5 topics" in lines[2]
    head = lines.index(next(line for line in lines if line.split()[:2] == ["base", "next"]))
    assert lines[head].split()[3:6] == ["bytes", "stored", "index"]
    (log,) = inspect_store(tmp_path).to_json()["logs"]
    assert log["stored_bytes"] == sum(one["stored_bytes"] for one in log["segments"]) < log["bytes"]
