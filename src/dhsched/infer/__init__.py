"""The Infer-Controller: applications push input (PushText), Workers pull it (PullText), the store's fence stands in
between. A controller holds only caches.

Words of this package:

- *pull*: a Worker's claim to the input of one generation of a session (called a live here).
- *granted pull*: a pull that the store has granted, and that this controller *serves*.
- *release*: the store call that returns the next items of a pull.
- *hint*: the store's message that a live may have items to release.
- *window*: how many items a Worker may have unacked (the setting `credit`).
- *row*: one live's part of a store call that many lives share.

An item: `push`, or `stream` with its PushStream (`push_stream`), checks the item by `append_rules`; `Pulls.append_soon`
(`pulls`) adds it to this tick's append and makes the live's pull due; a `Gather` sends each of the two calls; the
answer to the release goes through `GrantedPull` (`granted_pull`) to the Worker's connection (`pull`). The Worker's ack
takes the same way back.
"""
