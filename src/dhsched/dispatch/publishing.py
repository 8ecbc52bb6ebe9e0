"""Who may publish: a room shows the token that a Worker showed it, and is told which generation is current.

The room cannot reach the store and has no secret: it asks here, once for each connection of a publisher. The answer is
two facts, the generation that the token was issued for and the one that is current now. What follows from them is the
room's fence (room/fence.py).
"""

from __future__ import annotations

from dhsched.dispatch import models as m
from dhsched.dispatch.context import DispatchContext
from dhsched.tokens import BadToken, Tokens, open_tokens
from dhsched.web import Asked, Endpoint, Problem


class PublishTokens:
    """The endpoint for rooms, of one replica. The secrets are read when it is first asked."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context
        self._tokens: Tokens | None = None

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="show_publishing",
                method="POST",
                path="/v1/publishing",
                handler=self.show,
                summary="Which generation a publish token is for, and which one is current.",
                tag="rooms",
                body=m.ShowPublishing,
                replies={200: m.PublishingOut},
                problems=["UNAUTHORIZED", "NOT_FOUND"],
            )
        ]

    async def show(self, asked: Asked) -> m.PublishingOut:
        if self._tokens is None:
            self._tokens = await open_tokens(self.context.store.link, self.context.store.keys)
        try:
            publishing = await self._tokens.read_publish(asked.body.token)
        except BadToken as error:
            raise Problem("UNAUTHORIZED", str(error)) from error
        live_id = publishing.live.partition("/")[2]
        record = await self.context.reads.live(publishing.live)
        if record is None:
            raise Problem("NOT_FOUND", f"live {live_id} is not there any more; stop publishing", live_id=live_id)
        current = record.current
        return m.PublishingOut(
            live=publishing.live,
            live_id=live_id,
            worker=publishing.generation.worker,
            epoch=publishing.generation.epoch,
            current=m.GenerationOut(current.worker, current.epoch),
            cause=current.cause,
            state=record.state,
        )
