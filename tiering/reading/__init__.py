"""Reading back from a bucket: segments in a bounded local folder, opened there as ordinary files.

Nothing here writes to a bucket, and nothing knows an open store. Read `fetched_segments` first."""
