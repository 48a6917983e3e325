"""What a fleet of devices needs, by a small model: `timestone bench sizing`.

`constants` has all that was measured and all that was chosen, with where it comes from; `model` computes with it, and
`command` prints. docs/scale.md explains the result and has the tables of `--markdown`.
"""
