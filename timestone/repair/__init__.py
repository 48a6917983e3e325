"""Tools for stores that need a look from outside: inspection, salvage, backup.

The engine does not import this room. Read `inspection` first.
"""
