"""Recovery: notice that a live or a Worker is in trouble, and repair it.

Words of this package:

- *beat*: the counter that each report of a Worker moves. *Lost*: a Worker whose beat stood still for `worker_ttl_s`.
- *brake*: when many Workers fall silent together, they are expired later and a few at a time.
- *trouble*, *blame*: a loss, stall or crash, counted by Worker name; a name with too many is cordoned.
- *term*, *floor*: a term is begun by an operator only; every epoch from before it is at or below the floor, and void.

`liveness` expires Workers; `recover` takes lives from the agenda, calls `blame` (which decides with `judge`) and then
`commit`; `reconcile` reaps Workers, recounts loads (`safety`) and walks all lives after a new term has begun (`terms`).
`silences` is what Worker links, liveness, recovery and cutovers share about silent Workers.
"""
