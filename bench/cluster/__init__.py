"""The benchmark of clusters, `timestone bench cluster`: three nodes and etcd on loopback, beside a single node and
other systems of three servers.

`own_cluster` and `peer_clusters` start what is measured, `cases` measures it, `goals` compares, and `command` runs the
cases in turn. `pauses`, `appends` and `sessions` are the parts of the load that other benchmarks do not have. Read
`cases` first.
"""
