"""Retained messages: a view of the logs, kept as a checkpoint and a replay of what came after it.

Read `messages` first.
"""
