"""Benchmarks of the engine: a log beside the bare system calls, opening after a kill, and scale.

`segment_throughput` is the command of that name: `segment_writes` and `segment_reads` have its rows, `cases` and
`workload` what they are made of, `throughput_result` the figures. `opening` and `scale` are one command each.
"""
