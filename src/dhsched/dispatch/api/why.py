"""`GET /v1/lives/{live_id}/why`: why a live is on its Worker, or on none."""

from __future__ import annotations

from dhsched.client.models import lives as m
from dhsched.client.models.base import LivePath
from dhsched.dispatch.api.lives import find_digital_id, not_found
from dhsched.dispatch.api.part import Part
from dhsched.dispatch.api.refusals import explain_choice
from dhsched.dispatch.commit import choose_candidates
from dhsched.dispatch.telemetry.history import phases
from dhsched.types import live_key
from dhsched.web import Endpoint, Request


class Why(Part):
    """The endpoint that explains where a live is, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_why",
                method="GET",
                path="/v1/lives/{live_id}/why",
                handler=self.why,
                summary="Why the live was placed where it is, or why it was not placed.",
                tag="lives",
                path_type=LivePath,
                replies={200: m.WhyOut},
                problems=["NOT_FOUND", "NO_ELIGIBLE_POOL"],
            ),
        ]

    async def why(self, asked: Request) -> m.WhyOut:
        """Explain the decision as it was made, if this replica made and remembers it; else as it would be made now."""
        live_id, context = asked.path.live_id, self.context
        live = live_key(asked.caller.tenant, live_id)
        record, kept = await context.records.lives.get(live), context.remembered.get(live)
        if record is None and kept is None:
            raise not_found(live_id)
        row = None if record is None else phases(record.current, record.history[-1].worker if record.history else "")
        if kept is not None and (record is None or kept.epoch == record.epoch):
            told = explain_choice(context, kept.choice, kept.refusals, kept.won)
            return m.WhyOut(live_id, kept.outcome, row, "then", told)
        assert record is not None
        choice = choose_candidates(context, await find_digital_id(context, record.digital_id))
        return m.WhyOut(live_id, "Committed", row, "now", explain_choice(context, choice))
