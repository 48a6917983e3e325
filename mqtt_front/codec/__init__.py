"""MQTT packets as bytes and as values. No I/O, no state: every function here is pure.

`reasons`, `packets`, `properties`: the values. `fields`: the primitive types. `decode`, `encode`: one packet
at a time. `scan`, `frame`: the two hot paths, whole batches at a time; a native twin may replace exactly
these.
"""
