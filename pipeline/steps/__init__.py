"""From rows to rows: parsing, repetitions, windows, last state, and frames over the files of tables.

Read `clean` first. Knows neither the stream nor the order in which a batch commits.
"""
