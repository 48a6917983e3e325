"""Values for monitoring: counters, gauges and histograms, and the records that a server keeps of them.

Does not know the parts that count. Read first: `metric.py`.
"""
