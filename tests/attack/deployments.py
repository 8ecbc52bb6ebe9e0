"""A deployment with keys for two tenants: store, Dispatch, Infer-Controller and Workers, each a process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dhsched.access.ring import open_ring
from dhsched.client import Client
from dhsched.local.deployment import Deployment
from dhsched.local.keys import Keys
from dhsched.local.process import Process
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore

ROOT = Path(__file__).parents[2]
POOL, DIGITAL_ID = "gpu", "anna"
ATTACKER, HONEST = "tenant-a", "tenant-b"
WORKERS = 2
CAPACITY = 100
LIVES = 20
"""Lives of each tenant before anything happens. Tenant A may create as many more as there is capacity."""


class FromRoot(Process):
    """A process that can import this package."""

    folder: ClassVar[Path | None] = ROOT


@dataclass(frozen=True, slots=True)
class Target:
    """One deployment, as its tenants see it: URLs, an API key for each tenant, and ids of their lives."""

    name: str
    dispatch: str
    infer: str
    keys: dict[str, str]
    lives: dict[str, list[str]]

    def client(self, tenant: str) -> Client:
        return Client(self.dispatch, self.infer, key=self.keys[tenant])


@asynccontextmanager
async def running(name: str, workers: int = WORKERS, lives: int = LIVES) -> AsyncIterator[Target]:
    """Start a deployment with default settings, create each tenant's lives, and stop the deployment in the end."""
    async with Embedded() as server:
        url = server.address.url()
        async with await RedisStore.open(server.address) as store:
            ring = await open_ring(store.link, store.keys)
            admin, _ = await ring.create(role="admin")
            worker, _ = await ring.create(role="worker", names="*", pool=POOL)
            keys = {tenant: (await ring.create(role="app", tenant=tenant))[0] for tenant in (ATTACKER, HONEST)}
        async with Deployment(url, keys=Keys(admin, {POOL: worker})) as d:
            await d.dispatch(f"{name}-dispatch")
            await d.infer(f"{name}-infer")
            await d.configure({DIGITAL_ID: [POOL]})
            for n in range(workers):
                await d.worker(f"{name}-worker-{n}", runtime="null", pool=POOL, capacity=CAPACITY)
            await d.until_workers(workers)
            made = {tenant: [f"{tenant}-{n}" for n in range(lives)] for tenant in keys}
            target = Target(name, (await d.dispatch_urls())[0], (await d.infer_urls())[0], keys, made)
            for tenant, ids in made.items():
                async with target.client(tenant) as client:
                    for live_id in ids:
                        await client.create(DIGITAL_ID, live_id=live_id)
            yield target
