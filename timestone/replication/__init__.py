"""Logs that are replicas: their written end is not what readers see, they take the records of a leader as they are, and
their newest records can be cut. Knows no peer, etcd or protocol; a cluster drives it. Read `replicated_log` first."""
