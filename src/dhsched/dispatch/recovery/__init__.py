"""Recovery: notice that a live, a Worker or the store's history is in trouble, and repair it.

Words of this package:

- *beat*: the counter that each report of a Worker moves. *Lost*: a Worker whose beat stood still for `worker_ttl_s`.
- *brake*: when many Workers fall silent together, they are expired later and a few at a time.
- *trouble*, *blame*: a loss, stall or crash, counted by Worker name; a name with too many is cordoned.
- *term*, *floor*: the number of the store's history, and the least epoch that a generation of it has.
- *claim*, *voice*: a Worker's report that the store lost history, and the API key and address it came from.

`liveness` expires Workers; `recover` takes lives from the agenda, calls `blame` (which decides with `judge`) and then
`commit`; `reconcile` reaps Workers, recounts loads (`safety`) and walks all lives after `terms` has begun a new term.
`silences` is what Worker links, liveness, recovery and cutovers share about silent Workers.
"""
