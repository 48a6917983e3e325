"""Input of commands: kinds of values, places in a log, log names, lines of input.

Not here: settings. Read first: `parameters.py`.
"""
