"""Per-record loops, compiled or in Python, with the layout of an index entry and its checksums. Knows columns in
memory only: no file, no segment, no log. Read `loops` first: it chooses the implementation."""
