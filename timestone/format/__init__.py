"""Files of a store: names, identity, listing, markers, deletion, and the topic dictionary of a log. Knows the layout
of a store directory, not how records are written or read. Read `names` first."""
