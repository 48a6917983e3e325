"""Compressed segments: the frame table, reading through frames, and the cache of decoded frames. Knows frames and
dictionaries, not which segments are compressed or when. Read `frame_table` first."""
