"""A node: runs its shards with a store, etcd and other nodes. Read `node` first; `client` appends from outside."""
