"""Codec of MQTT packets: pure functions without I/O or state.

`reasons`, `packets`, `properties`: values. `fields`: primitive types. `decode`, `encode`: one packet at a time.
`scan`, `frame`: the two hot paths, whole batches at a time; a compiled twin may replace exactly these."""
