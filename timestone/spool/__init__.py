"""Records of other processes: the file format, the producer that hands them over, the consumer that appends them once.

Read `format` first. Only the consumer runs inside the process that owns the store.
"""
