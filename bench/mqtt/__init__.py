"""The benchmark of MQTT servers, `timestone bench mqtt`: raw sockets, packets encoded in batches, several processes.

`scenario` describes a run and starts the processes of `worker_pool`, each of which runs a part of its load (`load/`);
`comparison` executes it on one server after the other, and `command` prints the result. Read `command` first.
"""
