"""Side files: Parquet files beside the log, one for each sealed segment. Writes them, keeps them current, and finds
the valid ones. Must not import pyspark: `timestone parquet` runs without it. Read `side_file.py` first."""
