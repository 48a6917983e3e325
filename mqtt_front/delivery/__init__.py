"""From records to the packets of a subscriber: which sessions are served next, and how a run of records is packed.

Read `delivery` first.
"""
