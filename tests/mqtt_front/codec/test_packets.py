"""Packet values: frozen, comparable, and silent about what must not be logged."""

import dataclasses

import pytest

from mqtt_front.codec.packets import Connect, Puback, Publish, Pubrec, Will


def test_packets_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Publish("a").topic = "b"  # type: ignore[misc]


def test_acknowledgements_of_different_kinds_differ() -> None:
    assert Puback(1) == Puback(1)
    assert Puback(1).__eq__(Pubrec(1)) is NotImplemented


def test_payloads_and_passwords_are_not_shown() -> None:
    shown = repr(Connect("c", password=b"geheim", will=Will("t", b"geheim"))) + repr(Publish("t", b"geheim"))
    assert "geheim" not in shown
