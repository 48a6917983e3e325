"""Reading records across segments and from memory, waking parked readers, and the batches that a read returns.

Never writes a file. Read `readable` first: the read path that a log and a view share.
"""
