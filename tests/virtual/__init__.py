"""Virtual runs: the product's own services, Workers and client in one process, on virtual time, under seeded faults.

Words: a *node* is what would be a process on a machine of its own; the *net* is what carries bytes between nodes; the
*keyspace* is the data of the store; a *fault* is one row of a run's schedule. A run is one integer: the same seed gives
the same trace to the byte. docs/internals/virtual-runs.md says how to read a failure.
"""
