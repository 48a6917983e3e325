"""Parts of `timestone serve` around the fronts: start and stop, metrics, systemd.

Not here: where settings come from, and any particular front. Read first: `server.py`.
"""
