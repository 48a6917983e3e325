"""Processes of Spark: finding and starting Java, adding a class to it, and the Python workers. Must not know logs,
options or records. Read `gateway.py` first."""
