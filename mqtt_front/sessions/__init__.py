"""Sessions, their stored documents, and the store that loads, saves and expires them. Read `session` first."""
