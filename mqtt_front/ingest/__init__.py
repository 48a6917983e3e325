"""The path of a publish into a log: routing, batching, acknowledgement, backpressure, QoS 2 receipts.

Read `ingest` first: it decides when a publish is answered; `puback` decides how.
"""
