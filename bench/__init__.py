"""Benchmarks: one question a module, answered on this machine with and without Timestone (`timestone_bench`).

A benchmark is a module with `add_arguments(parser)`, `run(arguments, progress) -> exit code` and `BenchmarkError`;
`timestone bench` finds it.
"""
