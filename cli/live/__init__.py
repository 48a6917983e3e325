"""Commands about what a server does: a file each. All but `metrics.py`, which reads its samples in the store, ask a
running server over its control socket.

`client_rows.py` has what they share about clients. Not here: the protocol of the socket (`control/`).
"""
