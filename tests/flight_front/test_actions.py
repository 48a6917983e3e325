import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.flight_server import batch, flight_server, put


def test_actions_create_configure_and_delete_logs(tmp_path: Path) -> None:
    def act(client: Any, kind: str, **values: Any) -> dict[str, Any]:
        [result] = client.do_action(fl.Action(kind, json.dumps(values).encode()))
        found: dict[str, Any] = json.loads(result.body.to_pybytes())
        return found

    with flight_server(tmp_path) as server, server.connect() as client:
        assert act(client, "create-log", log="new")["end"] == 0
        put(client, fl.FlightDescriptor.for_path("new"), batch([b"x", b"y"]))
        assert act(client, "sync", log="new") == {"synced": 2}
        assert act(client, "commit", log="new", reader="me", offset=1) == {"committed": 1}
        assert act(client, "lags", log="new")["readers"][0]["metadata"] == ""
        assert act(client, "commit", log="new", reader="me", offset=1, metadata="host 7") == {"committed": 1}
        assert act(client, "lags", log="new")["readers"] == [
            {"reader": "me", "committed": 1, "lag": 1, "missed": 0, "metadata": "host 7"}
        ]
        with pytest.raises((fl.FlightError, pa.ArrowException), match="at most 4096 bytes, got 4097"):
            act(client, "commit", log="new", reader="me", offset=2, metadata="x" * 4097)
        assert act(client, "delete-log", log="new")["deleted"] == "new"
        with pytest.raises((fl.FlightError, pa.ArrowException), match="unknown action"):
            act(client, "drop")
        with pytest.raises(
            (fl.FlightError, pa.ArrowException), match="invalid offset-at: expected 'time_us'"
        ):
            act(client, "offset-at", log="t")
        for kind in ("create-log", "configure"):
            with pytest.raises(pa.ArrowException, match=r"invalid settings: expected an object, got \[5\]"):
                act(client, kind, log="t", settings=[5])
        with pytest.raises(pa.ArrowException, match=r"invalid name of a reader: expected text, got \['a'\]"):
            act(client, "commit", log="t", reader=["a"], offset=0)
        with pytest.raises((fl.FlightError, pa.ArrowException), match="no log named"):
            act(client, "sync", log="new")
        assert act(client, "offset-at", log="t", time_us=0) == {"offset": 0}
        assert (
            act(client, "configure", log="t", settings={"retention_ms": 5})["settings"]["retention_ms"] == 5
        )
        assert act(client, "health") == {"ready": True, "failed": []}
        assert {one.type for one in client.list_actions()} >= {"create-log", "health"}
