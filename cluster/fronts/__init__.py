"""What fronts need of a cluster apart from a node's protocol: their documents in replicated logs (`state_log`), and the
node as those see it that serve on each one (`node_fronts`). Knows no link and no replica."""
