"""A node: runs the protocol against a store, etcd and other nodes. Read `node` first; `shard` does what one replica
asks for, `client` appends from outside."""
