"""Commands about a running server, which they ask over its control socket: a file each.

`client_rows.py` has what they share about clients. Not here: the protocol of the socket (`control/`).
"""
