"""A dispatch replica in the test's own process, over a real store: real HTTP, no start-up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from dhsched.dispatch.app import Replica, open_context
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from tests.harness.replicas import register


class Api:
    """A replica's API: `await api("POST", "/v1/lives", {...})` answers status and document."""

    def __init__(self, client: TestClient[Any, Any], replica: Replica) -> None:
        self.client = client
        self.replica = replica
        self.context = replica.context

    async def __call__(self, method: str, path: str, json: Any = None, **options: Any) -> tuple[int, Any]:
        async with self.client.request(method, path, json=json, **options) as response:
            return response.status, await response.json(content_type=None) if response.status != 204 else None

    async def create(self, live_id: str = "L", query: str = "", **more: Any) -> tuple[int, Any]:
        return await self("POST", f"/v1/lives{query}", {"digital_id": "anna", "live_id": live_id, **more})

    async def workers(self, count: int, *, capacity: int, pool: str = "gpu", name: str = "w") -> list[str]:
        """Workers that the view knows."""
        made = await register(self.context.store, count, capacity=capacity, pool=pool, name=name)
        await self.context.fleet.refresh()
        return made

    async def configure(self) -> None:
        """Pool gpu, and DigitalID anna that lists it."""
        assert (await self("PUT", "/v1/pools/gpu", {}))[0] == 201
        assert (await self("PUT", "/v1/digital-ids/anna", {"pools": [{"pool": "gpu"}]}))[0] == 201


@asynccontextmanager
async def serving(address: Address, **settings: Any) -> AsyncIterator[Api]:
    settings = {"name": "d1", "refresh_max_s": 0.3, "access": "open", **settings}
    async with open_context(address, DispatchSettings(**settings)) as context:
        replica = Replica(context)
        async with TestClient(TestServer(replica.app())) as client:
            yield Api(client, replica)
