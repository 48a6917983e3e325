"""Logs into Spark: which offsets a batch or a micro-batch reads, the tasks they become, a task's records as Arrow.

Runs in the driver's planner and in Spark's Python workers. Must not parse option text.
Read `scan.py` first: both readers plan and read with it.
"""
