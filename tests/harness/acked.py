"""Wait until the store has what a test waits for."""

from __future__ import annotations

from dhsched.store.raw import hash_of
from tests.harness.fleet import Fleet, until_so


async def until_acked(f: Fleet, live: str, n: int) -> None:
    await until_so(lambda: f.get(f"/v1/lives/{live}"), lambda found: found["acked"] >= n, f"{live} to ack {n}")


async def until_slots(f: Fleet, worker: str, n: int) -> None:
    await until_so(lambda: slots_of(f, worker), lambda table: len(table) == n, f"{worker} to hold {n} slots")


async def slots_of(f: Fleet, worker: str) -> dict[str, bytes]:
    store = f.controllers[0].context.store
    return hash_of(await store.link.call("HGETALL", store.keys.of("slots", worker)))
