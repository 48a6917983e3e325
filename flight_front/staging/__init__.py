"""Parts that clients stage and post, and batches of producers, each once for its number: in the folder of a store, or
in the logs of a cluster. Read `parts` first. Knows no stream of a client."""
