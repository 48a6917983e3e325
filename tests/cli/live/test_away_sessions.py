"""Stored sessions are read in pages from the catalogue, with their users, and without those that cannot be decoded."""

from pathlib import Path

import timestone
from mqtt_front.sessions.session_store import SPACE
from tests.support.stored_session import NEVER_S, stored_session
from timestone.view import view_store
from timestone_cli.live.away_sessions import AwaySessions


def test_sessions_are_paged_by_client_and_found_with_or_without_their_user(tmp_path: Path) -> None:
    keys = ["pump", "pump\0anna", "tank\0bert", "valve"]
    with timestone.open(tmp_path / "data") as store:
        stored = {key: stored_session(NEVER_S if key == "pump" else 60, 1e-6) for key in keys}
        others = {"": b"{}", "\0group/mqtt/t": b"{}", "rest": b"TSES\x63", "valve": stored_session(60, 0.0)}
        store.documents.put_many(SPACE, stored | others)
    with view_store(tmp_path / "data") as view:
        sessions = AwaySessions(view)
        found, following = sessions.page("", 2, "")
        assert [(one["client"], one["user"]) for one in found] == [("pump", None), ("pump", "anna")]
        found, end = sessions.page(following or "", 9, "")
        assert [(one["client"], one["user"]) for one in found] == [("tank", "bert"), ("valve", None)]
        assert end is None
        tank, valve = found
        assert tank["away_s"] > 0 and valve["away_s"] is None
        assert (tank["expiry_s"], tank["in_flight"], tank["size_bytes"]) == (
            60,
            [5],
            len(stored["tank\0bert"]),
        )
        feeds = [{"log": "mqtt", "partition": 0, "offset": 9}]
        assert tank["subscriptions"] == [{"filter": "a/#", "qos": 1, "feeds": feeds}]
        users = {
            (client, user): sessions.of(client, user)
            for client in ("pump", "tank")
            for user in (None, "bert")
        }
        assert {key: one and one["user"] for key, one in users.items()} == {
            ("pump", None): None,
            ("pump", "bert"): None,
            ("tank", None): "bert",
            ("tank", "bert"): "bert",
        }
        assert (users["pump", None] or {})["expiry_s"] is None
        assert users["pump", "bert"] is None
        assert sessions.of("rest", None) is None


def test_store_without_sessions_has_none(tmp_path: Path) -> None:
    timestone.open(tmp_path / "data").close()
    with view_store(tmp_path / "data") as view:
        assert AwaySessions(view).page("", 10, "x") == ([], None)
