"""Output of commands: tables, JSON, records, progress.

Not here: decisions; these modules render what they are given. Read first: `record_formats.py`.
"""
