"""Option text into checked, frozen values: what to read, from where to where, and as which columns.

Must not open a store, except that a bound looks up its offset in a log that it is given. Read `read_options.py` first.
"""
