"""Named readers of a store, as clients of the front use them; for those of a cluster see
tests/cluster/node/test_flight.py."""

from pathlib import Path

import pytest

from flight_front.readers import HeldReader, Readers
from tests.support.flight_server import flight_server
from timestone.errors import ReaderInUse
from timestone.reading.named_readers import ReaderId


def test_reader_commits_to_the_catalogue_of_the_store(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        log, readers = server.store.log("t"), Readers(server.store, None)
        log.append_many([b"0", b"1", b"2"])
        held = HeldReader(readers, log, "desk")
        assert held.committed is None
        held.commit(2, "note")
        held.check()
        found = server.store.committed(ReaderId("t", 0, "desk"))
        assert found is not None and (found.offset, found.metadata) == (2, "note")
        with pytest.raises(ReaderInUse):
            HeldReader(readers, log, "desk")
        held.close()
        again = HeldReader(readers, log, "desk")
        assert again.committed is not None and again.committed.offset == 2


def test_name_is_held_beside_readers_of_the_engine(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        log = server.store.log("t")
        with log.reader(name="desk"), pytest.raises(ReaderInUse):
            HeldReader(Readers(server.store, None), log, "desk")
