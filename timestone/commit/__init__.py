"""Group commit: submissions, the threads that write and flush for their callers, and the rules of when to flush.

Sees a log through the narrow protocols declared here. Read `committer` first.
"""
