"""What changes the tables with Spark: a batch of the stream, backfill, reprocess; and whether a run has anything to do.

Read `batches` first.
"""
