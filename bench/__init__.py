"""Benchmarks: one question a module, answered on this machine with and without Timestone (`timestone_bench`).

A benchmark is a module that defines `command`; `timestone bench` has the table of them.
"""
