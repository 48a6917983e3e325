"""Calls of the HTTP API: a file a page, each with the queries and replies of its calls and what answers them.

`routes.py` is the table of all calls, and what to read first. Not here: HTTP itself, and how a store is read.
"""
