"""Drain Workers of a fleet over HTTP, and wait for the end."""

from __future__ import annotations

from typing import Any

from dhsched.ownership import invariants
from dhsched.store.raw import read_state
from tests.harness.fleet import PATIENCE_S, Fleet, until_so


def quoted(worker: str) -> str:
    return worker.replace("#", "%23")


async def drain(f: Fleet, worker: str, **wish: Any) -> Any:
    status, document = await f.post(f"{f.dispatch[0]}/v1/workers/{quoted(worker)}/drain", wish)
    assert status == 200, document
    return document


async def progress(f: Fleet, worker: str) -> Any:
    return await f.get(f"/v1/workers/{quoted(worker)}/drain")


async def until_done(f: Fleet, worker: str, wait_s: float = PATIENCE_S) -> Any:
    return await until_so(lambda: progress(f, worker), lambda at: at["done"], f"the drain of {worker}", wait_s)


async def ids(f: Fleet, count: int) -> dict[str, str]:
    async def named() -> dict[str, str]:
        return {w["worker"].partition("#")[0]: w["worker"] for w in (await f.get("/v1/workers"))["workers"]}

    return await until_so(named, lambda found: len(found) >= count, f"{count} Workers")


async def settled(f: Fleet) -> None:
    """What must always hold, holds."""
    assert invariants.of_state(await read_state(f.controllers[0].context.store.link, "main")) == []


async def where(f: Fleet, live: str) -> Any:
    return await f.get(f"/v1/lives/{live}")
