"""etcd as the cluster sees it: five calls, and what the keys of a cluster say. Read `client` first; `http` is below it,
and `registry` keeps a picture of the keys and the lease of this node."""
