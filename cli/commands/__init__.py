"""One file a command, named for it: its options, and the calls that do the work.

Belongs here: what a command does in which order. Not here: how things are printed, read or configured. No command
imports another. Read first: `append.py`.
"""
