"""Encoding of sessions; documents of other versions are refused."""

import json
from typing import Any

import pytest

from mqtt_front.feeds.feed import LogSource
from mqtt_front.feeds.retained_feed import RetainedFeed
from mqtt_front.feeds.subscription import Subscription
from mqtt_front.sessions.qos2_receipts import Receipts
from mqtt_front.sessions.session import InFlight, Session
from mqtt_front.sessions.session_document import (
    NEVER_S,
    Lifetime,
    UndecodableSession,
    after_restart,
    decode_session,
    encode_session,
    session_lifetime,
)
from tests.support.committed import committed
from tests.support.damaged_json import DAMAGED_JSON
from timestone.store import Store

GOLDEN = bytes.fromhex("54534553 01 000000 100e0000 000000000070a740") + (
    b'{"subscriptions":[{"filter":"a/#","qos":1,"no_local":false,"retain_as_published":true,"identifier":7,'
    b'"since":{"mqtt":3}}],"logs":{"mqtt":{"id":%d,"seen":9,"in_flight":[[5,4,1],[6,8,2]]}},"last_packet_id":6,'
    b'"released":[3],"received":[7,8],"unsettled":[9],"settled":{"mqtt":20},"run":1}'
)
"""Version 1, with the id of the log left open."""
GOLDEN_2 = bytes.fromhex("54534553 02 000000 100e0000 000000000070a740") + GOLDEN[20:].replace(
    b'[6,8,2]]}},"last', b'[6,8,2]]},"retained/0":{"id":%d,"seen":2,"in_flight":[[7,1,1]],"log":"mqtt",'
    b'"retained":"a/#","until":5}},"last',
)  # fmt: skip
"""Version 2 also has feeds that are about one subscription."""
GOLDEN_3 = GOLDEN_2.replace(b"TSES\2", b"TSES\3").replace(b'"retained":"a/#"', b'"retained":["a/#"]')
"""Version 3 has feeds of the retained messages of several subscriptions."""
GOLDEN_4 = GOLDEN_3.replace(b"TSES\3", b"TSES\4").replace(b"[6,8,2]]}", b'[6,8,2]],"sent_below":15}')
"""Version 4 has the offset below which a killed server may have sent messages that are not in flight."""


@pytest.fixture
def source(store: Store) -> LogSource:
    log = store.log("mqtt")
    log.append_many([b"x"] * 20, topic="a/b")
    return LogSource.of(log)


def receipts(*sources: LogSource, run_id: int = 2) -> Receipts:
    made = Receipts([source.log for source in sources])
    made.run_id = run_id
    return made


def decoded(document: bytes, *sources: LogSource, run_id: int = 2) -> Session:
    by_name = {source.log.name: source for source in sources}
    found = receipts(*sources, run_id=run_id)
    return decode_session("c", document, by_name.get, lambda topic_filter: sources, found)


def test_document_of_version_1_is_read(source: LogSource) -> None:
    document = GOLDEN.replace(b"%d", str(source.log.id).encode())
    session = decoded(document, source, run_id=1)
    assert session.subscriptions == {"a/#": Subscription("a/#", 1, False, True, 7, {"mqtt": 3})}
    assert (session.expiry_s, session.packet_ids.last) == (3600, 6)
    assert {packet_id: entry.offset for packet_id, entry in session.in_flight.items()} == {5: 4, 6: 8}
    assert committed(session) == {"mqtt": 4}
    assert (list(session.released), session.received, session.unsettled) == ([3], {7, 8, 9}, {9})
    written = encode_session(session, 3000.0, receipts(source, run_id=1))
    assert written == document.replace(b"TSES\1", b"TSES\4", 1)


@pytest.mark.parametrize("golden", [GOLDEN_2, GOLDEN_3, GOLDEN_4])
def test_the_document_of_version_2_to_4_is_read_and_written_byte_for_byte(
    source: LogSource, golden: bytes
) -> None:
    document = golden.replace(b"%d", str(source.log.id).encode())
    session = decoded(document, source, run_id=1)
    assert committed(session) == {"mqtt": 4, "retained/0": 1}
    retained = session.feeds["retained/0"]
    assert isinstance(retained, RetainedFeed) and (retained.until, retained.window.seen) == (5, 2)
    assert list(retained.subscriptions) == ["a/#"]
    written = encode_session(session, 3000.0, receipts(source, run_id=1))
    newest = golden if golden is GOLDEN_4 else GOLDEN_3.replace(b"TSES\3", b"TSES\4")
    assert written == newest.replace(b"%d", str(source.log.id).encode())


def test_document_has_the_current_subscriptions_when_many_change(source: LogSource) -> None:
    session = Session("c", NEVER_S)
    filters = ['\u00e4/"x', *(f"d/{number}" for number in range(20))]
    with session.one_change():
        for topic_filter in filters:
            session.subscribe(Subscription(topic_filter, 1), [source])

    def check() -> None:
        restored = decoded(encode_session(session, 0, receipts(source)), source)
        assert restored.subscriptions == session.subscriptions

    check()
    session.subscribe(Subscription("d/1", 2, no_local=True, retain_as_published=True, identifier=9), [source])
    session.unsubscribe("d/2")
    check()
    for number in range(3, 20):
        session.unsubscribe(f"d/{number}")
    check()


def test_delivery_acknowledged_out_of_order_is_not_resent(source: LogSource) -> None:
    session = Session("c", NEVER_S)
    session.subscribe(Subscription("a/#", 1), [source])
    feed = session.feeds["mqtt"]
    for packet_id, offset in ((1, 4), (2, 5), (3, 6)):
        session.in_flight[packet_id] = InFlight(feed, offset, 1)
    feed.window.sent([4, 5, 6])
    feed.window.seen = 7
    session.acknowledged([2])
    restored = decoded(encode_session(session, 0, receipts(source)), source)
    restored.attach(lambda woken: None)
    assert committed(restored) == {"mqtt": 4}
    assert set(restored.feeds["mqtt"].resend) == {4, 6}


def test_session_starts_at_the_beginning_of_a_log_with_another_identity(source: LogSource) -> None:
    document = GOLDEN.replace(b"%d", b"1234")
    session = decoded(document, source)
    assert committed(session) == {"mqtt": source.log.start_offset}
    assert session.in_flight == {}


def test_missing_log_is_skipped_and_a_new_one_begins_at_its_end(source: LogSource, store: Store) -> None:
    other = LogSource.of(store.log("other"))
    other.log.append_many([b"x"] * 4, topic="a/b")
    document = GOLDEN.replace(b"%d", str(source.log.id).encode())
    session = decoded(document, other)
    assert committed(session) == {"other": 4}
    assert session.subscriptions["a/#"].since == {"other": 4}
    assert session.in_flight == {}


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"TSES",
        GOLDEN.replace(b"TSES\x01", b"TSES\x02"),
        GOLDEN.replace(b"TSES", b"XXXX"),
        GOLDEN[:60],
        GOLDEN[:20] + b"[]",
        GOLDEN[:20] + b'{"subscriptions":[],"logs":{}}',
        GOLDEN[:20]
        + b'{"subscriptions":[],"logs":[],"last_packet_id":0,"released":[],"received":[],"run":1,"unsettled":[]}',
        GOLDEN[:12] + bytes.fromhex("000000000000f87f") + GOLDEN[20:],
        *(GOLDEN[:20] + damaged for damaged in DAMAGED_JSON.values()),
    ],
)
def test_document_is_refused_when_it_is_not_valid(document: bytes, source: LogSource) -> None:
    with pytest.raises(UndecodableSession):
        decoded(document, source)


def _dicts(*changes: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return changes


_SUBSCRIPTION = {
    "filter": "a/#", "qos": 1, "no_local": False, "retain_as_published": False, "identifier": None, "since": {},
}  # fmt: skip
_LOG = {"seen": 9, "in_flight": []}
_WRONG_FIELDS: list[dict[str, Any]] = [
    {"last_packet_id": "6"}, {"last_packet_id": -1}, {"last_packet_id": 65_536}, {"released": "abc"},
    {"released": [0]}, {"received": ["x", 1]}, {"unsettled": {}}, {"settled": [1]}, {"settled": {"mqtt": "x"}},
    {"subscriptions": ["a/#"]}, {"subscriptions": 5}, {"logs": []}, {"logs": {"mqtt": 5}},
    *({"subscriptions": [{**_SUBSCRIPTION, **one}]} for one in _dicts(
        {"filter": 5}, {"filter": "a/#/b"}, {"qos": "1"}, {"qos": 3}, {"no_local": 1}, {"retain_as_published": None},
        {"identifier": 0}, {"identifier": "7"}, {"since": []}, {"since": {"mqtt": -1}},
    )),
    *({"logs": {"mqtt": {**_LOG, **one}}} for one in _dicts(
        {"seen": "9"}, {"seen": -1}, {"seen": 1.5}, {"in_flight": "abc"}, {"in_flight": [[5, -7, 1]]},
        {"in_flight": [[0, 4, 1]]}, {"in_flight": [[5, 4, 3]]}, {"log": [1]}, {"stream": 5}, {"shared": 5},
        {"gap": "x"}, {"retained": "a/#", "until": None},
    )),
]  # fmt: skip


@pytest.mark.parametrize("change", _WRONG_FIELDS, ids=str)
def test_field_of_another_type_is_refused_before_a_session_is_created(
    change: dict[str, Any], source: LogSource
) -> None:
    body = json.loads(GOLDEN[20:] % source.log.id)
    for state in change.get("logs", {}).values() if isinstance(change.get("logs"), dict) else ():
        if isinstance(state, dict):
            state["id"] = source.log.id
    decoded(GOLDEN[:20] + json.dumps(body).encode(), source)
    with pytest.raises(UndecodableSession, match="invalid session document"):
        decoded(GOLDEN[:20] + json.dumps(body | change).encode(), source)


@pytest.mark.parametrize("damaged", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_document_that_cannot_be_read_stays_as_it_is_after_a_restart(
    damaged: bytes, source: LogSource
) -> None:
    document = GOLDEN[:20] + damaged
    assert after_restart("c", document, receipts(source), 1.0) is document


def connected(document: bytes) -> bytes:
    """The document as it is while the client is connected."""
    return document[:12] + bytes(8) + document[20:]


@pytest.mark.parametrize("golden", [GOLDEN_2, GOLDEN_3, GOLDEN_4])
def test_document_of_a_client_that_was_connected_says_what_may_have_been_sent(
    source: LogSource, golden: bytes
) -> None:
    document = connected(golden.replace(b"%d", str(source.log.id).encode()))
    again = after_restart("c", document, receipts(source), 4000.0)
    assert session_lifetime(again) == Lifetime(3600, 4000.0)
    session = decoded(again, source)
    assert {key: feed.sent_below for key, feed in session.feeds.items()} == {"mqtt": 20, "retained/0": 20}
    assert after_restart("c", again, receipts(source), 5000.0) is again, "its client is away since then"


def test_document_of_a_client_that_was_away_stays_as_it_is_after_a_restart(source: LogSource) -> None:
    document = GOLDEN_4.replace(b"%d", str(source.log.id).encode())
    assert after_restart("c", document, receipts(source), 4000.0) is document


def test_nothing_was_sent_of_a_log_with_another_identity(source: LogSource) -> None:
    document = connected(GOLDEN_3.replace(b"%d", b"77"))
    session = decoded(after_restart("c", document, receipts(source), 1.0), source)
    assert [feed.sent_below for feed in session.feeds.values()] == [0]


def test_unsettled_publishes_are_valid_in_their_own_process_only(source: LogSource) -> None:
    document = GOLDEN.replace(b"%d", str(source.log.id).encode())
    assert decoded(document, source, run_id=1).received == {7, 8, 9}
    assert decoded(document, source, run_id=2).received == {7, 8}


def test_lifetime_is_read_without_decoding_the_rest() -> None:
    assert session_lifetime(GOLDEN) == Lifetime(3600, 3000.0)
    assert Lifetime(10, 100.0).left_s(103.0) == 7.0
    assert Lifetime(10, 100.0).left_s(50.0) == 10.0, "the clock was set back"
    assert Lifetime(10, 0).left_s(500.0) == 10.0, "it was connected when the server died"
    assert Lifetime(NEVER_S, 100.0).left_s(500.0) is None
