"""Compressed segments: the frame table, reading one as if it were not compressed, and what its readers share.

Knows frames and dictionaries, not which segments are compressed or when. Read `frame_table` first.
"""
