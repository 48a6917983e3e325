"""Payloads as typed columns: one module a format, and the handling of payloads that do not fit their schema. Must not
know options beyond `PayloadOptions`, and imports a format's library only when that format is used. Read `formats.py`
first: it has the contract between the source and the formats."""
