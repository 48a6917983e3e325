"""The load generator of `timestone bench mqtt`: raw sockets, packets encoded in batches, several processes.

`wire` knows the protocols, `form` their packets as columns; `publisher` and `subscriber` are one connection each,
`traffic` drives many of them in one process, `crew` are the processes of one run; `scenario` says what a run
consists of, and `comparison` runs it on one server after the other. `command` is what `timestone bench mqtt` finds.
"""
