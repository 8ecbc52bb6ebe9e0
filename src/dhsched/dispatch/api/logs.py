"""`GET /v1/lives/{live_id}/logs`: the last log lines of a live's runtimes, over all its generations."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from dhsched.client.models import lives as m
from dhsched.client.models.base import LivePath, Strict
from dhsched.dispatch.api import parameters as p
from dhsched.dispatch.api.lives import not_found
from dhsched.dispatch.api.part import Part
from dhsched.types import NUMBER_MAX, live_key
from dhsched.web import Endpoint, Request


class LogsQuery(Strict):
    """Lines after number `after`, the latest `limit` of them."""

    after: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)] = 0
    limit: p.Limit = p.PAGE_DEFAULT


class Logs(Part):
    """The endpoint of log lines, of one replica."""

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                name="get_logs",
                method="GET",
                path="/v1/lives/{live_id}/logs",
                handler=self.get,
                summary="The last log lines of the live's runtimes.",
                tag="lives",
                path_type=LivePath,
                query=LogsQuery,
                replies={200: m.Log},
                problems=["NOT_FOUND"],
            ),
        ]

    async def get(self, asked: Request) -> m.Log:
        records, query, live_id = self.context.records, asked.query, asked.path.live_id
        live = live_key(asked.caller.tenant, live_id)
        progress, lines = await asyncio.gather(
            records.lives.progress(live), records.logs.after(live, query.after, query.limit)
        )
        if progress is None:
            raise not_found(live_id)
        return m.Log(live_id, [m.LogLine(*line) for line in lines], progress.state == "ended")
