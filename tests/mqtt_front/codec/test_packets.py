"""Packet values: immutable, comparable, and without secrets in their repr."""

import dataclasses

import pytest

from mqtt_front.codec.packets import Connect, Puback, Publish, Pubrec, Will


def test_packets_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Publish("a").topic = "b"  # type: ignore[misc]


def test_acknowledgements_of_different_kinds_differ() -> None:
    assert Puback(1) == Puback(1)
    assert Puback(1).__eq__(Pubrec(1)) is NotImplemented


def test_repr_of_a_packet_hides_payload_and_password() -> None:
    shown = repr(Connect("c", password=b"geheim", will=Will("t", b"geheim"))) + repr(Publish("t", b"geheim"))
    assert "geheim" not in shown
