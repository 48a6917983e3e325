"""A stored session as bytes, as docs/formats/session.md has it, without the code that writes one."""

import struct

NEVER_S = 0xFFFFFFFF
_BODY = (
    b'{"subscriptions":[{"filter":"a/#","qos":1,"no_local":false,"retain_as_published":false,"identifier":null,'
    b'"since":{"mqtt":3,"gone":0}}],"logs":{"mqtt":{"id":1,"seen":9,"in_flight":[[5,4,1]]}},"last_packet_id":6,'
    b'"released":[],"received":[],"unsettled":[],"settled":{},"run":1}'
)


def stored_session(expiry_s: int, ended_s: float) -> bytes:
    """Return a session with a subscription to `a/#` that has seen the log `mqtt` up to offset 9, one in flight.
    ended_s: in seconds of the store; 0 for a connected one."""
    return struct.pack("<4sB3xId", b"TSES", 4, expiry_s, ended_s) + _BODY
