"""The load generator of `timestone bench mqtt`: raw sockets, packets encoded in batches, several processes.

`client_protocols` has the protocols, `packet_template` their packets as columns. `publisher` and `subscriber` are one
connection each, `traffic` drives many of them in one process, `worker_pool` has the processes of one run. `scenario`
describes a run, `comparison` executes it on one server after the other, and `command` is `timestone bench mqtt`.
"""
