"""A fleet whose Workers are killed and whose lives are recovered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from typer.testing import CliRunner

from dhsched import cli
from dhsched.dispatch.app import Replica, open_context
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import running
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from tests.harness.fleet import PATIENCE_S, Fleet, until_so
from tests.harness.servers import empty_server

LOOPS = ("liveness", "recovery", "reconciliation")
"""Not those of planned moves: a test holds a live as they would, and they must not see it through."""


class Recovering(Fleet):
    """A fleet whose replicas run the loops that mend what broke."""

    contexts: list[DispatchContext]

    async def events(self, *kinds: str) -> list[Any]:
        await asyncio.gather(*(each.events.written() for each in self.contexts))
        found = (await self.get("/v1/events?limit=1000"))["events"]
        return [event for event in found if not kinds or event["kind"] in kinds]

    async def until(self, path: str, wanted: Callable[[Any], object], what: str, wait_s: float = PATIENCE_S) -> Any:
        return await until_so(lambda: self.get(path), wanted, what, wait_s)


@asynccontextmanager
async def recovering(
    folder: Path, *, replicas: int = 2, limits: Limits = DEFAULT_LIMITS, **settings: Any
) -> AsyncIterator[Recovering]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(empty_server("valkey"))
        f = Recovering(server, folder, stack)
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        f.contexts, f.limits = [], limits
        for n in range(replicas):
            given = DispatchSettings(
                name=f"d{n}", refresh_min_s=0.05, refresh_max_s=0.1, recover_s=0.05, access="open", **settings
            )
            context = await stack.enter_async_context(open_context(f.address, given, limits=limits))
            f.contexts.append(context)
            replica = Replica(context)
            await f.serve(replica.app(), f.dispatch)
            mine = {name: loop for name, loop in replica.loops().items() if name in LOOPS}
            await stack.enter_async_context(running(mine, rng=context.rng))
        await f.start_infer()
        await f.configure()
        yield f


async def verb(f: Fleet, *words: str) -> Any:
    env = {"DHSCHED_URL": f.dispatch[0]}
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words, "--json"], env=env)
    return json.loads(result.output[result.output.index("{\n") :])


def ready(found: Any) -> int:
    return sum(1 for worker in found["workers"] if worker["status"] == "ready")


def waiting(found: Any) -> list[Any]:
    return [each for each in found["recoveries"] if each["waiting_for"]]
