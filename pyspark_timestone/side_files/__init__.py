"""Parquet files beside the log, one for each sealed segment: writing one, keeping all, finding those that count.

Must not import pyspark: `timestone parquet` runs without it. Read `side_file.py` first.
"""
