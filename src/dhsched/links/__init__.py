"""Links between dhsched's own processes: the messages of both links, and the outbox of every socket.

Words of this package:

- *Worker link*: the WebSocket between a Worker and Dispatch. *Pull link*: between a Worker and an Infer-Controller.
- *frame*: the messages to one peer that one tick of the event loop sends together.
- *turn*: the messages of one frame that are handled before other connections are served.

A sender calls `Outbox.put` (`outbox`), whose task encodes the messages (`messages`) and sends a frame; the receiver
decodes it with `read_from_worker` or one of its siblings, and handles the messages `in_turns`. JSON, of push streams
(whose frames are one turn at most) and of request bodies, is checked by `json_bounds` before it is decoded.
"""
