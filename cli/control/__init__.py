"""Control socket of a running server: `CONTROL` in its data directory.

`protocol.py` has what both sides share and is what to read first; `service.py` is the side of the server, `actions.py`
what its requests do, `caller.py` the side of a command. Not here: the commands, and what a front is.
"""
