"""The processes Spark runs in: finding and starting Java, adding a class to it, and the Python workers that it starts.

Must not know logs, options or records. Read `gateway.py` first.
"""
