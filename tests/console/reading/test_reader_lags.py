import dataclasses
from pathlib import Path

import timestone
from tests.support.stores import LOG, fill
from timestone.reading.named_readers import Commitment, ReaderId
from timestone.view import view_store
from timestone_console.reading.reader_lags import (
    furthest_behind,
    held_bytes,
    lag_series,
    reader_places,
    time_at,
    trend_per_s,
)
from timestone_console.reading.samples import Samples


def test_places_have_lag_in_offsets_and_seconds_those_furthest_behind_first(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    with timestone.open(tmp_path / "data") as store:
        store.commit_readers({ReaderId(LOG, 0, "near"): 99, ReaderId(LOG, 0, "far"): 10})
        store.commit_readers({ReaderId(LOG, 0, "done"): 100, ReaderId(LOG, 0, "mqtt.retained"): 0})
    with view_store(tmp_path / "data") as view:
        places = [place for place, _ in reader_places(view)]
        assert [(one.name, one.lag) for one in places] == [
            ("mqtt.retained", 100), ("far", 90), ("near", 1), ("done", 0),
        ]  # fmt: skip
        assert places[3].lag_s == 0.0 and places[1].lag_s is not None and places[1].lag_s > 0
        furthest = furthest_behind(view)
        assert furthest is not None and furthest.name == "far"
        log = view.log(LOG)
        assert time_at(log, 10) == log.record(10).timestamp_us and time_at(log, 100) is None
        assert trend_per_s(Samples(view), furthest) is None


def test_series_of_a_lag_has_its_name_in_a_sample() -> None:
    assert lag_series("a", 1, 'b"c\\d') == 'timestone_reader_lag{log="a",partition="1",reader="b\\"c\\\\d"}'


def test_pin_holds_the_records_from_the_place_of_its_reader_on(tmp_path: Path) -> None:
    fill(tmp_path / "data", 100)
    with timestone.open(tmp_path / "data") as store:
        store.commit_readers({ReaderId(LOG, 0, "r"): 0})
    with view_store(tmp_path / "data") as view:
        log, found = view.log(LOG), view.committed(ReaderId(LOG, 0, "r"))
        assert found is not None

        def held(offset: int) -> int | None:
            at: Commitment = dataclasses.replace(found, offset=offset)
            return held_bytes(log, at)

        assert held(0) == sum(segment.size_bytes() for segment in log.segment_list.segments)
        sizes = [held(offset) or 0 for offset in range(101)]
        assert sizes[100] == 0 and sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 101
