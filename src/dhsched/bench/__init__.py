"""Benchmarks of `dhsched bench`, one module each, on this machine.

- *Size*: how much a benchmark measures; its fields are the verb's options.
- *round*: one measurement of each side of a comparison; sides alternate, and the result is the median of the rounds.
- *peer*: other software that does the same work, for comparison (input_peers.py, separate_commands.py, redis-py).
- *report*, *say*: the function that is called with a line of progress.

cli/bench.py calls `bench_<name>(size, report)`, which starts a store (store.server.embedded) and, where it needs them,
processes (local.deployment), measures with harness.py, and returns one dictionary; harness.py prints it as JSON. The
Workers of those processes run the runtimes of ends.py.
"""
