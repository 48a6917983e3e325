"""The protocol by which the replicas of a shard hold the same records. No I/O: events go in, actions come out.

Knows the engine's errors only; nothing here knows a front, Spark, tiering or the command line. Read `shard_record`
first: what etcd holds of a shard; then `replica`: what one replica does about it.
"""
