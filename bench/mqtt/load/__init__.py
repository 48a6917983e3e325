"""The load of one process: what `worker` runs for the scenario of its `job`. Knows no server but an address.

`client_protocols` has the protocols, `packet_template` their packets as columns. `publisher` and `subscriber` are one
connection each, `traffic` drives many of them at the rate of `pacing`. Read `worker` first.
"""
