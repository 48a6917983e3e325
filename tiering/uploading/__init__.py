"""From sealed segments to a committed manifest: the claim on a prefix, the order of objects, the pace, the thread.

Read `log_uploader` first. Everything here runs in the one thread of `uploader`.
"""
