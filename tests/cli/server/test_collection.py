import asyncio
import logging
from pathlib import Path

import timestone
from tests.cli.line_front import LineFront, LineSettings
from timestone_cli.server.collection import Collection


def test_numbers_of_a_part_without_metrics_are_of_unknown_kind_and_server_logs_are_left_out(
    tmp_path: Path,
) -> None:
    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        for log in ("lines", "timestone.metrics"):
            store.log(log).append(b"x")
        front = LineFront(store, LineSettings(), log=logging.getLogger("test"))
        found = {one.name: one for one in asyncio.run(Collection(store, [front]).metrics())}
    assert {one.kind for name, one in found.items() if name.startswith("timestone_line_")} <= {"unknown"}
    assert [labels["log"] for labels, _ in found["timestone_log_end_offset"].samples] == ["lines"]
    assert found["timestone_records_skipped"].samples == [({}, 0)]
