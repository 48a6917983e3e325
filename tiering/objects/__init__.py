"""Which objects the history of a log consists of: their names, the manifest, and finding the newest one.

Read `layout` first. `layout` and `manifest` do no I/O.
"""
