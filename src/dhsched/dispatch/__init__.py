"""Dispatch: stateless peer replicas that place sessions (called lives here) on Workers, and serve the HTTP API (paper,
sections 5, 7.2).

Words of this package:

- *replica*: one dispatch process. All its memory is a cache; only the store decides.
- *view*: what a replica believes of the fleet. The view ranks candidates; the store admits.
- *Intent*, *Attempt*: one request to give a live its next generation, and the store's answer.
- *Worker link*: the WebSocket of one Worker. *Hint*: the store's notice that a Worker's slot table changed.
- *agenda*: the store's list of lives to look at, by time. *Look*: the step that decides what such a live needs.
- *move*: reserve a slot on a target, hold the input, cut over at a boundary.
- *round*: one turn of a loop.

A create: `api/create` (which waits in `view/create_queue` for a free slot) calls `commit`, which takes candidates from
`view/fleet_view` and calls `store.place`. The store's hint reaches `worker_link`, which sends `wake`; the Worker
reports and receives its slot table.
A lost Worker: `recovery/liveness` expires the Worker, the store puts its lives on the agenda, `recovery/recover` calls
`commit` for each of them.
A drain: `api/drains` or `worker_link` writes the request; the loop of `moves/drain` calls `moves/plan`, then
`moves/cutover`, which calls `commit`.
"""
