"""HTTP of the console: requests that are refused, headers of each response, sessions, static files, deadlines.

`gate.py` is what each request passes, and what to read first. Not here: the calls of the API.
"""
