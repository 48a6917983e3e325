"""The process a command runs in: signals, standard streams, version.

Read first: `interrupts.py`.
"""
