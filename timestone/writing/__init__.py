"""The path of a batch of records into segment and index files: write batch, segment writer, active segment, sealing.

Knows nothing of acknowledgements or threads: its callers hold the write lock. Read `segment_writer` first: the order of
system calls.
"""
