"""Runs of publishes can be cut without their columns coming apart."""

from mqtt_front.events import Publishes


def test_the_head_of_a_run_has_just_its_packet_ids() -> None:
    run = Publishes(
        b"\x30\x32\x30\x34", [b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", b"4"], 0, [b"\0\1", b"\0\2"], 99
    )
    assert run.head(3) == Publishes(b"\x30\x32\x30", [b"a", b"b", b"c"], [b"1", b"2", b"3"], 0, [b"\0\1"], 99)
    assert run.head(0).packet_ids == []
    with_headers = run._replace(header_lengths=[0, 5, 0, 0])
    assert with_headers.head(2).header_lengths == [0, 5]
