"""Settings: declared as classes, shown as options, read from options, environment and file, converted from text.

Not here: what a setting does. Read first: `schema.py`.
"""
