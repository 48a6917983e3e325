"""Web console of a store: an HTTP API and pages, in a process of its own.

It reads a store as `timestone.view` shows it and asks a running server through an object that the command line passes
in. `api/routes.py` is the table of all calls, and what to read first. Not here: fronts, the pipeline, the terminal.
"""
