from pathlib import Path

import timestone
from pyspark_timestone.flight.remote_spool import RemoteSpool
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.flight_server import FlightServer
from pyspark_timestone.writing.spools import StoreSpool, spool_of
from tests.support.postings import frame
from timestone.spool.format import Posting

KEY = LogPartition("commands", 0)


def test_target_decides_where_records_are_staged(tmp_path: Path) -> None:
    assert isinstance(spool_of(tmp_path), StoreSpool)
    assert isinstance(spool_of(FlightServer("host:1")), RemoteSpool)


def test_spool_of_a_store_stages_posts_and_discards(tmp_path: Path) -> None:
    spool = StoreSpool(tmp_path)
    assert spool.record_bytes() == {}
    with spool.new_part("g", KEY) as part, spool.new_part("g", KEY) as other:
        part.add(frame([b"a"]))
        other.add(frame([b"b"]))
    spool.discard((KEY, name) for name in other.names)
    spool.post(Posting(*KEY, "p", 1, tuple(part.names), remembered=False), timeout_s=30, begins=False)
    spool.discard_group("g")
    with timestone.view(tmp_path) as view:
        assert [record.payload for record in view.log(*KEY)] == [b"a"]
    assert list(spool.record_bytes()) == [KEY]
    assert not list((tmp_path / "inbox" / "staging").iterdir())
