"""Publish tokens over HTTP: a room sends the token that a Worker showed, and learns which generation is current.

The room cannot reach the store and has no secret, so it calls this endpoint once for each connection of a publisher.
The answer has the generation that the token was issued for, the current generation, and the home of the store in which
it is current. The room's fence decides from these who may publish (room/fence.py).
"""

from __future__ import annotations

from dhsched.client.models import lives as m
from dhsched.dispatch.api.part import Part
from dhsched.errors import BadToken
from dhsched.tokens import Tokens
from dhsched.web import Endpoint, Problem, Request


class PublishTokens(Part):
    """The endpoint for rooms, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="show_publishing",
                method="POST",
                path="/v1/publishing",
                handler=self.show,
                summary="Which generation a publish token is for, and which generation is current.",
                tag="rooms",
                body=m.ShowPublishing,
                replies={200: m.PublishingOut},
                problems=["UNAUTHORIZED", "NOT_FOUND"],
                audited=False,  # It only reads.
            )
        ]

    async def show(self, asked: Request) -> m.PublishingOut:
        try:
            publishing = await Tokens(self.context.ring).read_publish(asked.body.token)
        except BadToken as error:
            raise Problem("UNAUTHORIZED", str(error)) from error
        tenant, _, live_id = publishing.live.partition("/")
        ours = asked.caller.admin or tenant == asked.caller.tenant
        store = self.context.store
        # One command on the link of the steps, which knows its home. To enter another home takes round trips, so here
        # the home is still the one of the connection that answered.
        record = await store.records.lives.progress(publishing.live) if ours else None
        home = store.homes.home
        if record is None:
            raise Problem("NOT_FOUND", f"live {live_id} does not exist any more; stop publishing", live_id=live_id)
        return m.PublishingOut(
            live=publishing.live,
            live_id=live_id,
            worker=publishing.generation.worker,
            epoch=publishing.generation.epoch,
            current=m.Generation(record.worker, record.epoch),
            cause=record.cause,
            state=record.state,
            home=home,
        )
