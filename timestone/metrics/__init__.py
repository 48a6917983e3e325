"""Values for monitoring: counters, gauges and histograms.

Knows neither a text format nor the parts that count. Read first: `metric.py`.
"""
