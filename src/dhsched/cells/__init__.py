"""Many cells, pure: which cell takes a create, how a bucket of live ids moves, where a Worker is registered.

No service uses this yet: these rules are written down and proven before anything is built on them
(docs/internals/protocol.md, "Many cells"; docs/decisions/0022-many-cells.md; spec/Cells.tla, spec/CellWorkers.tla).

Words: a *cell* is a store of its own, with all of its protocol; a *bucket* is one of 1,024 parts of all live ids; a
*move* brings one bucket from one cell to another, and its number is in the cells that it concerns; the *map* says which
cell has which bucket, and is only a hint. No step spans two cells. What is safe follows from what each cell has written
of its own buckets (buckets.py), from the order in which a create asks cells (creates.py), and from the order of a
move's steps (moves.py).
"""
