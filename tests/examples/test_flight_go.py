"""The example in Go appends, reads and follows."""

import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.flight_server import flight_server

PROGRAM = ROOT / "build" / "go" / "flight"


@pytest.mark.skipif(
    not PROGRAM.exists(),
    reason="needs build/go/flight: cd examples/flight && go build -o ../../build/go/flight .",
)
def test_go_client_appends_reads_and_follows(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        done = subprocess.run([PROGRAM, server.address, "t"], capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            '{"batch": 0, "first": 0, "end": 2, "ack": "synced"}',
            "2 Go",
            "2 Go",
        ]
        assert [record.payload for record in server.store.log("t")] == [b"from", b"Go"]
