"""What an operator does with the history in a bucket: look at it, verify it, bring it back.

Each module is one operation, which reports its progress and returns what it found; none prints. Read `status` first.
"""
