"""What is computed from a store: samples of metrics, chosen records, values as people read them, topics, segments.

`samples.py` is what to read first. Not here: HTTP and the shape of replies.
"""
