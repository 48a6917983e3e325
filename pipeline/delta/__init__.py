"""Tables at a location: their columns, files and Delta logs, read and written; what needs no Spark and no Java.

Read `warehouse` first. Knows neither Spark nor the meaning of a row.
"""
