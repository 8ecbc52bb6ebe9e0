"""A Dispatch replica and an Infer-Controller that ask for keys, in the test's own process, over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from dhsched.access.gate import Gate
from dhsched.access.ring import KeyRing
from dhsched.dispatch.app import Replica, open_context
from dhsched.infer.app import open_infer
from dhsched.infer.context import InferContext
from dhsched.infer.settings import InferSettings
from dhsched.links import messages
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import Address
from dhsched.worker.main import Leaving, run_worker
from dhsched.worker.settings import WorkerSettings
from tests.harness.fleet import PATIENCE_S, Record
from tests.harness.serving import Api


class Keyed:
    """`dispatch` and `infer` are clients; `key` makes API keys, `token` has one mint."""

    def __init__(
        self, api: Api, infer: TestClient[Any, Any], infer_context: InferContext, apps: dict[str, web.Application]
    ) -> None:
        self.api = api
        self.infer = infer
        self.infer_context = infer_context
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

    # -- Workers

    async def configure(self, admin: dict[str, str]) -> None:
        """Pool gpu, and DigitalID anna that lists it."""
        assert (await self.ask("PUT", "/v1/pools/gpu", admin, {}))[0] == 201
        assert (await self.ask("PUT", "/v1/digital-ids/anna", admin, {"pools": [{"pool": "gpu"}]}))[0] == 201

    async def announce(self) -> None:
        """Let Workers find the Infer-Controller."""
        store = self.api.context.store
        now = int((await store.link.call("TIME"))[0]) * 1000 + 600_000
        url = str(self.infer.make_url("/")).rstrip("/")
        await store.link.call("ZADD", store.keys.of("controllers"), now, f"{self.infer_context.service.instance} {url}")

    @asynccontextmanager
    async def worker(self, folder: Path, record: Record, **given: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A Worker of this replica, in this process."""
        url = str(self.api.client.make_url("/")).rstrip("/")
        given = {"pool": "gpu", "capacity": 2, "name": "gpu-1", "drain_s": 0, "teardown_s": 1, **given}
        settings = WorkerSettings(**given, dispatch=(url,), lock_folder=folder)
        task = asyncio.create_task(run_worker(settings, record, Leaving()))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def link(
        self, shown: dict[str, str], *said: messages.Message
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A bare Worker link that has sent these messages."""
        async with self.api.client.ws_connect("/v1/workers/link", headers=shown) as socket:
            await socket.send_bytes(messages.encode([*said]))
            yield socket

    async def registered(self, shown: dict[str, str], register: messages.Register) -> messages.Registered:
        """What a new boot is answered. Its link is closed again."""
        async with self.link(shown, register) as socket:
            said = await heard(socket)
            assert isinstance(said, messages.Registered), said
            return said

    async def refusal(self, shown: dict[str, str], message: messages.Message) -> str:
        """The sentence with which a Worker's first message is refused."""
        async with self.link(shown, message) as socket:
            said = await heard(socket)
            assert isinstance(said, messages.Problem) and said.code in ("FORBIDDEN", "UNAUTHORIZED"), said
            return str(said.detail)


async def heard(socket: aiohttp.ClientWebSocketResponse) -> messages.FromDispatch:
    """The next message of Dispatch; it must be alone in its frame."""
    [said] = messages.read_from_dispatch((await asyncio.wait_for(socket.receive(), PATIENCE_S)).data)
    return said


def bearer(shown: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {shown}"}


@asynccontextmanager
async def keyed(address: Address, n: int = 1, **settings: Any) -> AsyncIterator[Keyed]:
    """The `n`-th Dispatch replica and Infer-Controller of the cell."""
    shared = {"access": "keys", "store": address.url(), **settings}
    dispatch = DispatchSettings(name=f"d{n}", refresh_max_s=0.3, **shared)
    async with open_context(address, dispatch) as context, open_infer(InferSettings(name=f"i{n}", **shared)) as infer:
        replica = Replica(context)
        apps = {"dispatch": replica.app(), "infer": infer.app}
        async with TestClient(TestServer(apps["dispatch"])) as client, TestClient(TestServer(apps["infer"])) as other:
            made = Keyed(Api(client, replica), other, infer.context, apps)
            for ring in (made.ring, infer.ring):
                ring.reread_min_s = 0.005  # Tests are refused a lot.
            yield made
