"""Parts that are staged over Arrow Flight and posted at once."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.flight_server import batch, command, flight_server, options, put
from tests.support.postings import frame
from timestone.format.names import INBOX_SPACE
from timestone_access.passwords.password_file import set_password

REFUSED = (fl.FlightError, pa.ArrowException)


def act(client: Any, kind: str, login: Any = None, **values: Any) -> dict[str, Any]:
    [result] = client.do_action(fl.Action(kind, json.dumps(values).encode()), login or options())
    found: dict[str, Any] = json.loads(result.body.to_pybytes())
    return found


def part_of(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([frame(list(values)).encode()], pa.binary())], names=["part"])


def inbox(path: Path) -> list[str]:
    return [each.name for each in (path / "data" / "inbox").rglob("*") if each.is_file()]


def test_parts_are_appended_together_once_for_each_number(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        answers = put(client, command(log="t", stage="group-1"), part_of(b"a", b"b"), part_of(b"c"))
        names = [answer["part"] for answer in answers]
        assert [answer["ack"] for answer in answers] == ["synced", "synced"]
        assert server.store.log("t").end_offset == 0
        values = {"log": "t", "producer": "p", "number": 3, "parts": names, "begin": True}
        for _ in range(2):
            assert act(client, "post", **values) == {"posted": 3}
        assert [record.payload for record in server.store.log("t")] == [b"a", b"b", b"c"]
        act(client, "discard", log="t", group="group-1", producer="p")
        assert inbox(tmp_path) == []
        assert server.store.documents.items(INBOX_SPACE) == {}


def test_parts_that_are_not_posted_are_removed(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        [first, second] = put(client, command(log="t", stage="g"), part_of(b"a"), part_of(b"b"))
        act(client, "discard", log="t", parts=[first["part"]])
        assert len(inbox(tmp_path)) == 1
        with pytest.raises(
            REFUSED, match=r"the posting is refused: .*a part of the posting is missing"
        ) as refused:
            act(client, "post", log="t", producer="p", number=0, parts=[second["part"], first["part"]])
        assert str(tmp_path) not in str(refused.value)
        assert server.store.log("t").end_offset == 0
        act(client, "discard", log="t", group="g")
        act(client, "discard", log="t", group="g")
        assert not [name for name in inbox(tmp_path) if not name.endswith(".refused")]


def test_what_is_not_a_part_is_refused(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        for wrong in ("../../data/catalog", "g/../../t-0", "g/" + "0" * 31, 7):
            with pytest.raises(REFUSED, match="invalid part: expected a name from an answer"):
                act(client, "post", log="t", producer="p", number=1, parts=[wrong])
        for group in ("", "a/b", "..", "x" * 101):
            with pytest.raises(REFUSED, match="invalid group"):
                put(client, command(log="t", stage=group), part_of(b"a"))
        with pytest.raises(REFUSED, match="expected one column, part of binary"):
            put(client, command(log="t", stage="g"), batch([b"a"]))
        with pytest.raises(REFUSED, match="expected one part, got 2 rows"):
            put(client, command(log="t", stage="g"), pa.concat_batches([part_of(b"a")] * 2))
        garbage = pa.record_batch([pa.array([b"garbage" * 9], pa.binary())], names=["part"])
        [answer] = put(client, command(log="t", stage="g"), garbage)
        with pytest.raises(REFUSED, match="not a part of a posting: wrong magic number"):
            act(client, "post", log="t", producer="p", number=0, parts=[answer["part"]])
        with pytest.raises(REFUSED, match="no log named"):
            put(client, command(log="missing", stage="g"), part_of(b"a"))
        assert server.store.log("t").end_offset == 0


def test_parts_and_numbers_belong_to_their_user_and_need_the_right_to_write(tmp_path: Path) -> None:
    rights = "user one\nlog write t\nuser two\nlog write t\nuser reader\nlog read t\n"
    (tmp_path / "acl").write_text(rights)
    for name in ("one", "two", "reader"):
        set_password(tmp_path / "passwords", name, b"secret")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server, server.connect() as client:

        def login(name: bytes) -> Any:
            return fl.FlightCallOptions(headers=[client.authenticate_basic_token(name, b"secret")])

        one, two, reader = login(b"one"), login(b"two"), login(b"reader")
        [answer] = put(client, command(log="t", stage="g"), part_of(b"a"), logged_in=one)
        with pytest.raises(REFUSED, match="a part of the posting is missing"):
            act(client, "post", two, log="t", producer="p", number=0, parts=[answer["part"]])
        act(client, "discard", two, log="t", group="g", parts=[answer["part"]])
        for kind in ("post", "discard"):
            with pytest.raises(fl.FlightUnauthorizedError, match="no right to write log 't'"):
                act(client, kind, reader, log="t", producer="p", number=1, parts=[])
        act(client, "post", one, log="t", producer="p", number=1, parts=[answer["part"]], begin=True)
        # The same name and lower numbers of another user, for a posting and for a batch.
        [answer] = put(client, command(log="t", stage="g"), part_of(b"b"), logged_in=two)
        act(client, "post", two, log="t", producer="p", number=0, parts=[answer["part"]])
        act(client, "begin", one, log="t", producer="q")
        act(client, "begin", two, log="t", producer="q")
        named, ninth, second = command(log="t", producer="q"), [{"number": 9}], [{"number": 2}]
        assert put(client, named, batch([b"c"]), metadata=ninth, logged_in=one)[0]["first"] == 2
        assert put(client, named, batch([b"d"]), metadata=second, logged_in=two)[0]["first"] == 3
        act(client, "discard", two, log="t", producer="q")
        assert put(client, named, batch([b"c"]), metadata=ninth, logged_in=one)[0]["duplicate"]
        for wrong in ("", "x" * 181, "a\nb"):
            with pytest.raises(REFUSED, match="invalid producer: expected 1 to 180 printable characters"):
                put(client, command(log="t", producer=wrong), batch([b"e"]), metadata=ninth, logged_in=one)
        assert [record.payload for record in server.store.log("t")] == [b"a", b"b", b"c", b"d"]
