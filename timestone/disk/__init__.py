"""Every system call on files, and what is stored beside the records: locks, clocks, the catalogue, JSON documents.

Knows no segment and no record. Read `files` first: tests replace it to let the disk fail.
"""
