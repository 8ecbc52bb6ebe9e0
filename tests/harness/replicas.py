"""Real dispatch processes for tests, and Workers for them to place lives on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dhsched import failpoints
from dhsched.local.deployment import Deployment
from dhsched.local.process import Process
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.steps.redis import RedisStore

SILENCE_IS_FINE = {"DHSCHED_DISPATCH_WORKER_TTL_S": "3600"}
"""Workers that `register` makes report once: nobody shall call them lost for it."""


@asynccontextmanager
async def replicas(address: Address, *names: str, **environment: str) -> AsyncIterator[list[Process]]:
    """Run a replica for each name (`name=failpoint` arms it), in the order of the names."""
    async with Deployment(address.url()) as made:
        for given in names:
            name, _, point = given.partition("=")
            armed = {failpoints.VARIABLE: f"{point}:kill"} if point else {}
            await made.dispatch(name, environment={**SILENCE_IS_FINE, **environment, **armed})
        await made.dispatch_urls()
        yield made.replicas


async def register(store: RedisStore, count: int, *, capacity: int, pool: str = "gpu", name: str = "w") -> list[str]:
    """Workers that have registered and reported: as far as placement can tell, real ones."""
    made = []
    for number in range(count):
        boot = f"boot-{pool}-{name}-{number}"
        outcome = await store.register_worker(name=f"{name}{number}", boot=boot, pool=pool, capacity=capacity)
        await store.report(worker=outcome.worker, boot=boot)
        made.append(outcome.worker)
    return made


async def place(store: RedisStore, live: str, worker: str) -> None:
    """Create a live of DigitalID anna on this Worker."""
    create = Create(digital_id="anna", fingerprint="f")
    made = await store.place(
        live=f"default/{live}", operation=f"op-{live}", cause="create", create=create, candidates=[worker]
    )
    assert isinstance(made, o.Committed)
