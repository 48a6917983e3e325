"""Scan of the files of a log after a crash, and the repair that follows from it.

`segment_scan` and `log_scan` only read; `recover` acts. Nothing here deletes a record.
"""
