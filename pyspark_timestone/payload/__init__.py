"""Payloads as typed columns: one module a format, and what becomes of a payload that does not fit its schema.

Must not know options beyond `PayloadOptions`, and imports a format's library only when that format is asked for.
Read `formats.py` first: it has the contract between the source and the formats.
"""
