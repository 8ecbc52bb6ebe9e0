"""Workers that claim what the store never said: nobody else notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dhsched.links import messages
from tests.failover.conftest import Show
from tests.harness.failover import Replicated, on_replicas
from tests.harness.pullers import puller

LIVES = [f"l{n}" for n in range(4)]
FALSE = 10**6
TIMES = 8
AFTER_S = 2.0  # For what would still restart.


@asynccontextmanager
async def deployed(kind: str, folder: Path) -> AsyncIterator[Replicated]:
    async with on_replicas(kind, folder, replicas=0) as f:
        await f.start_dispatch()
        await f.start_infer()
        await f.configure()
        for name in ("w1", "w2"):
            await f.start_recording_worker(name)
        await f.create_lives(LIVES)
        assert not await f.standing_still()
        yield f


class Liar:
    """A Worker's link to Dispatch, of which the test is the Worker."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def register(self, name: str) -> str:
        """Register; return the token."""
        register = messages.Register(name, f"boot-{name}", "elsewhere", 4, "", "")
        await self._socket.send_bytes(messages.encode([register]))
        return str((await self._hear(messages.Registered)).token)

    async def report(self, term: int, rev: int) -> None:
        await self._socket.send_bytes(messages.encode([messages.Report(term, rev)]))
        await self._hear(messages.Reported, messages.Problem)

    async def _hear(self, *kinds: type) -> Any:
        while True:
            frame = (await self._socket.receive(timeout=20)).data
            for each in messages.read_from_dispatch(frame):
                if isinstance(each, kinds):
                    return each


@asynccontextmanager
async def liars(f: Replicated, count: int) -> AsyncIterator[list[tuple[Liar, str]]]:
    """Workers that nobody needs, each with its token."""
    async with AsyncExitStack() as stack:
        made = []
        for n in range(count):
            liar = Liar(await stack.enter_async_context(f.http.ws_connect(f"{f.dispatch[0]}/v1/workers/link")))
            token = await liar.register(f"liar{n}")
            await liar.report(0, 0)
            made.append((liar, token))
        await asyncio.sleep(0.3)  # For Dispatch to know of them.
        yield made


async def test_a_false_pull_changes_nothing(kind: str, tmp_path: Path, show: Show) -> None:
    async with deployed(kind, tmp_path) as f, liars(f, 1) as [(_, token)]:
        began = time.monotonic()
        numbers = [*range(1, TIMES), *range(FALSE, FALSE + TIMES)]
        made_up = [messages.Pull(f"default/{live}", number, 0) for live in LIVES for number in numbers]
        async with puller(f.http, f.infer[0], token, *made_up) as heard:
            assert isinstance(await heard.get(), messages.Welcome)
            answers = [await heard.get() for _ in made_up]
        await nothing_changed(f, began, show)
        assert {type(each) for each in answers} == {messages.Stale}


async def test_a_false_report_changes_nothing(kind: str, tmp_path: Path, show: Show) -> None:
    async with deployed(kind, tmp_path) as f, liars(f, 1) as [(liar, _)]:
        began = time.monotonic()
        for n in range(TIMES):
            await liar.report(1, FALSE + n)
            await liar.report(FALSE + n, 0)
        await nothing_changed(f, began, show)


async def test_false_reports_of_two_workers_change_nothing(kind: str, tmp_path: Path, show: Show) -> None:
    async with deployed(kind, tmp_path) as f, liars(f, 2) as made:
        began = time.monotonic()
        for n in range(TIMES):
            for liar, _ in made:
                await liar.report(1, FALSE + n)
        await nothing_changed(f, began, show)


async def nothing_changed(f: Replicated, began: float, show: Show) -> None:
    """No live has another generation or another runtime, and all go on."""
    await asyncio.sleep(AFTER_S)
    still = await f.standing_still()
    broken, figures = await f.judged(lost_at=began, healed_at=began, quiet=f.lives)
    show(figures)
    assert not still and not broken
    honest = [event for event in await f.events() if not event["worker"].startswith("liar")]
    assert not {event["kind"] for event in honest} & {"new_term", "worker_lost", "live_recovered", "live_repaired"}
