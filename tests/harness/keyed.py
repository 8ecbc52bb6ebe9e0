"""A Dispatch replica and an Infer-Controller that ask for keys, in the test's own process, over a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from dhsched.access.gate import Gate
from dhsched.access.ring import KeyRing
from dhsched.dispatch.app import Replica, open_context
from dhsched.infer.app import open_infer
from dhsched.infer.settings import InferSettings
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from tests.harness.serving import Api


class Keyed:
    """`dispatch` and `infer` are clients; `key` makes API keys, `token` has one mint."""

    def __init__(self, api: Api, infer: TestClient[Any, Any], apps: dict[str, web.Application]) -> None:
        self.api = api
        self.infer = infer
        self.apps = apps
        self.clients: dict[str, TestClient[Any, Any]] = {"dispatch": api.client, "infer": infer}

    @property
    def ring(self) -> KeyRing:
        return self.api.context.ring

    @property
    def gate(self) -> Gate:
        gate = self.api.context.service.gate
        assert gate is not None
        return gate

    async def key(self, role: str, **given: Any) -> str:
        text, _ = await self.ring.create(role=role, **given)
        return text

    async def token(self, key: str, *, at: str = "dispatch", **body: Any) -> str:
        async with self.clients[at].post("/v1/tokens", json=body, headers=bearer(key)) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return str(answer["token"])

    async def role(self, role: str, **given: Any) -> dict[str, str]:
        """Headers of a new key's token."""
        return bearer(await self.token(await self.key(role, **given)))

    async def ask(
        self, method: str, path: str, shown: dict[str, str] | None = None, json: Any = None, *, at: str = "dispatch"
    ) -> tuple[int, Any]:
        async with self.clients[at].request(method, path, json=json, headers=shown or {}) as response:
            return response.status, await response.json(content_type=None) if response.status != 204 else None


def bearer(shown: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {shown}"}


@asynccontextmanager
async def keyed(address: Address, **settings: Any) -> AsyncIterator[Keyed]:
    shared = {"access": "keys", "store": address.url(), **settings}
    dispatch = DispatchSettings(name="d1", refresh_max_s=0.3, **shared)
    async with open_context(address, dispatch) as context, open_infer(InferSettings(name="i1", **shared)) as infer:
        replica = Replica(context)
        apps = {"dispatch": replica.app(), "infer": infer.app}
        async with TestClient(TestServer(apps["dispatch"])) as client, TestClient(TestServer(apps["infer"])) as other:
            made = Keyed(Api(client, replica), other, apps)
            for gate in (made.gate, infer.context.service.gate):
                assert gate is not None
                gate.ring.reread_min_s = 0.005  # Tests are refused a lot.
            yield made
