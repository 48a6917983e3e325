"""Background work on sealed segments: retention, compaction, compression, scrubbing.

Sees a log and its store through the protocols in `host`. Read `maintenance` first: the thread that runs it all.
"""
