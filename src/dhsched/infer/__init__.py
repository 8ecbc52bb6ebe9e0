"""The Infer-Controller: PushText in, PullText out, the fence in between. It keeps nothing but caches.

An item's way: `push.py`, or `stream.py` with its PushStream (push_stream.py), checks it; `Pulls.append_soon` (pulls.py)
puts it into this tick's append and makes the live's pull due; `Gather` (gather.py) sends both calls; the release's
answer goes through `GrantedPull` (granted_pull.py) to the Worker's connection (`pull.py`). The Worker's ack comes back
the same way.

Words. A *pull* is a Worker's claim to the input of one generation; once the store has granted it, it is a *granted
pull*, and this controller *serves* it. A *release* asks the store for the next items of a pull. A *hint* is the store's
message that there may be some. The *window* is how many items a Worker may have unacked. A *row* is one live's part of
a call that many lives share.
"""
