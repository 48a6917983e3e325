"""Writing rows of Spark into a log: options of the sink, rows as frames of a posting, staging and committing a
batch. Must not know how records are read. Read `sink.py` first."""
