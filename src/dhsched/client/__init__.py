"""The Python client: create lives, push to them, follow them.

    async with Client("http://127.0.0.1:7400", infer="http://127.0.0.1:7401") as client:
        live = await client.create("anna", wait_s=10)
        await client.push(live.live_id, "Hello.", boundary=True)
        async with client.stream(live.live_id) as stream:
            await stream.push("And many more.")
        async for event in client.events(live.live_id):
            print(event.name, event.data)

Every call that changes something carries an id of its own, so the client may repeat the call, here or at another
replica, until its deadline: the server does it once. A refusal of the server is raised as `Refused`, with its code.

Words: *replicas* are the servers of one role, any of which answers; a *key* is long-lived and mints *tokens*, which are
short-lived; a *producer* is a name under which a stream numbers its items.
Walk: lives.py is the client; it calls http.py, which follows the rules of calls.py; that asks credentials.py for the
key. stream.py pushes over a WebSocket, speaking.py has a model's answer spoken through it (sentences.py), following.py
reads server-sent events, models/ has the documents.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dhsched.errors import Refused, Unreachable

if TYPE_CHECKING:
    from dhsched.client.lives import Client, Event
    from dhsched.client.models.input import Pushed
    from dhsched.client.models.lives import Ended, Generation, History, Live, LiveSummary, Placed
    from dhsched.client.models.viewers import ViewerToken
    from dhsched.client.models.workers import Drain
    from dhsched.client.models.workers import WorkerSummary as Worker
    from dhsched.client.speaking import Heard, Turn
    from dhsched.client.stream import Stream

__all__ = [
    "Client",
    "Drain",
    "Ended",
    "Event",
    "Generation",
    "Heard",
    "History",
    "Live",
    "LiveSummary",
    "Placed",
    "Pushed",
    "Refused",
    "Stream",
    "Turn",
    "Unreachable",
    "ViewerToken",
    "Worker",
]

HOMES = {
    "lives": ("Client", "Event"),
    "models.input": ("Pushed",),
    "models.lives": ("Ended", "Generation", "History", "Live", "LiveSummary", "Placed"),
    "models.viewers": ("ViewerToken",),
    "models.workers": ("Drain", "WorkerSummary"),
    "speaking": ("Heard", "Turn"),
    "stream": ("Stream",),
}
"""Where the names are defined. They are loaded when they are used: the command line uses calls.py without them."""


def __getattr__(name: str) -> Any:
    wanted = "WorkerSummary" if name == "Worker" else name
    for home, names in HOMES.items():
        if wanted in names:
            return getattr(import_module(f"{__name__}.{home}"), wanted)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
