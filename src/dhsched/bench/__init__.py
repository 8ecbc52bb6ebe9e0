"""Benchmarks of `dhsched bench`, one module each, on this machine.

- *Size*: how much a benchmark measures; its fields are the verb's options.
- *round*: one measurement of each side of a comparison; sides alternate, and the result is the median of the rounds.
- *peer*: other software that does the same work, for comparison (peer_clients.py, separate_commands.py), as a good
  engineer would write it. The help of each verb names the peer of its ratios.
- *report*, *say*: the function that is called with a line of progress.

cli/bench.py calls `bench_<name>(size, report)`, which starts a store (store.server.embedded) and, where it needs them,
processes (local.deployment), measures with harness.py, and returns one dictionary, in which `server` is the store's
name and version; harness.py prints it as JSON. The Workers of those processes run the runtimes of ends.py; host.py has
many Workers of the `null` runtime in one process. Every process ends with the benchmark, also when that is killed:
roles and fronts run under local/child.py, servers under store/server/guardian.py.
"""
