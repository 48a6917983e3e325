"""Arrow Flight front: append, read and follow logs over gRPC. `front` runs the server in a thread with an event loop of
its own, `service` has the calls, one module a call; `records` has queries, columns and bytes. Read `service` first."""
