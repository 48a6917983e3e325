"""MQTT state machine of one connection without I/O: bytes in, events out. Knows the codec, not sessions or logs.
Read `connection` first."""
