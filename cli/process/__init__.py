"""Processes: the one a command runs in (signals, standard streams, version), and the workers of a server.

Read first: `interrupts.py`.
"""
