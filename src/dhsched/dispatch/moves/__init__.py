"""Planned moves: `plan` decides (pure), `drain` and `rebalance` start moves, `cutover` carries them out.

Words of this package:

- *source*, *target*: the Worker that a live leaves, and the Worker on which a slot is reserved for the live.
- *hold*: input stops at the next boundary. *Cutover*: the commit on the target, once everything is acked there.
- *forced*: committed without waiting for the boundary; the target gets again what the source had not acked.
- *standing*: how far one live of a drain is, and why.

A move: `drain.round` calls `plan.plan`, then `cutover.reserve`; the target's report calls `cutover.prepared`;
`cutover.round` holds the input and calls `commit` until the live rests at its boundary.
"""
