"""Rounds: tenant B pushes at a fixed rate and measures each push, while tenant A attacks one deployment or another."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from dhsched.access.minting import MINT_PATH
from dhsched.bench.harness import percentile
from tests.attack import attackers
from tests.attack.deployments import ATTACKER, HONEST, FromRoot, Target, running

Side = Literal["attacked", "control", "quiet"]
SETTLE_S = 1.0  # Between the beginning of the attacks and the first push that is measured.
PUSH_S = 30.0  # A push of tenant B that takes longer has failed.


@dataclass(frozen=True, slots=True)
class Size:
    """How long, how often and how much. `rate` is pushes of tenant B per second, `scale` multiplies A's rates."""

    rounds: int = 5
    seconds: float = 10.0
    rate: float = 40.0
    scale: float = 1.0
    lives: int = 20
    workers: int = 2


@dataclass(frozen=True, slots=True)
class Round:
    """What one round measured: B's pushes, and what became of A's requests, by kind and by answer."""

    side: Side
    pushes: int
    failed: int
    p50_ms: float
    p99_ms: float
    attacks_per_s: float
    answers: dict[str, dict[str, int]]

    @property
    def refused(self) -> int:
        """Requests of A that were refused, closed or not answered."""
        done = ("200", "201", "101", "open at the end")
        return sum(n for kinds in self.answers.values() for said, n in kinds.items() if said not in done)


async def run(size: Size, say: Callable[[Round], None] = lambda _: None) -> list[Round]:
    """Run all rounds, in turn: attacked, control, control, attacked, and so on, so that a trend of the machine is
    in both. The first round is without attackers."""
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(running(name, size.workers, size.lives)) for name in ("one", "two")
        ]
        found = [await measure("quiet", size, first, None)]
        say(found[0])
        for n in range(size.rounds):
            sides: list[tuple[Side, Target]] = [("attacked", first), ("control", second)]
            for side, attacked in sides if n % 2 == 0 else reversed(sides):
                found.append(await measure(side, size, first, attacked))
                say(found[-1])
        return found


async def measure(side: Side, size: Size, target: Target, attacked: Target | None) -> Round:
    """Measure B's pushes to `target` in one round, in which A attacks `attacked`."""
    processes = [] if attacked is None else await begin_attacks(size, attacked)
    try:
        await asyncio.sleep(SETTLE_S)
        pushed_s, failed = await push_for(size, target)
        answers: dict[str, dict[str, int]] = {}
        for process in processes:
            assert await process.ended() == 0, process.printed
            answers.update(json.loads(process.printed[-1]))
    finally:
        await asyncio.gather(*(process.stop() for process in processes))
    made = sum(n for kinds in answers.values() for n in kinds.values())
    ms = [1000 * each for each in pushed_s]
    seconds = size.seconds + 2 * SETTLE_S
    return Round(side, len(ms), failed, percentile(ms, 0.5), percentile(ms, 0.99), round(made / seconds, 1), answers)


async def begin_attacks(size: Size, attacked: Target) -> list[FromRoot]:
    """Start the processes of tenant A, and wait until all of them attack."""
    async with aiohttp.ClientSession() as http:
        token = await minted(http, attacked, ATTACKER)
    where = ("--dispatch", attacked.dispatch, "--infer", attacked.infer, "--lives", ",".join(attacked.lives[ATTACKER]))
    how = ("--seconds", str(size.seconds + 2 * SETTLE_S), "--scale", str(size.scale))
    processes = [
        await FromRoot.start(
            f"attacker {n}",
            *(*where, *how, "--kinds", ",".join(kinds)),
            module="tests.attack.attackers",
            environment={attackers.TOKEN: token},
        )
        for n, kinds in enumerate(attackers.PROCESSES)
    ]
    for process in processes:
        await process.until_ready()
    return processes


async def push_for(size: Size, target: Target) -> tuple[list[float], int]:
    """Push at B's rate, whether the pushes before have been answered or not; return the seconds of each, and how many
    were not accepted."""
    seconds: list[float] = []
    failures: Counter[Any] = Counter()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PUSH_S)) as http:
        shown = {"Authorization": f"Bearer {await minted(http, target, HONEST)}"}

        async def push(live_id: str) -> None:
            began = time.perf_counter()
            url = f"{target.infer}/v1/lives/{live_id}/text"
            try:
                async with http.post(url, json={"text": "Good morning."}, headers=shown) as response:
                    await response.read()
                    if response.status != 200:
                        failures[response.status] += 1
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                failures[type(error)] += 1
            seconds.append(time.perf_counter() - began)

        ids, tasks = target.lives[HONEST], []
        began = time.perf_counter()
        for n in range(round(size.seconds * size.rate)):
            await asyncio.sleep(max(0.0, began + n / size.rate - time.perf_counter()))
            tasks.append(asyncio.create_task(push(ids[n % len(ids)])))
        await asyncio.gather(*tasks)
    return seconds, failures.total()


async def minted(http: aiohttp.ClientSession, target: Target, tenant: str) -> str:
    shown = {"Authorization": f"Bearer {target.keys[tenant]}"}
    async with http.post(target.dispatch + MINT_PATH, json={}, headers=shown) as response:
        return str((await response.json())["token"])


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Return the result in one document. `ratio_p99` is the median P99 of attacked rounds by that of the controls."""

    def median(side: Side, name: str) -> float:
        return round(float(statistics.median(getattr(each, name) for each in rounds if each.side == side)), 3)

    return {
        "ratio_p99": round(median("attacked", "p99_ms") / median("control", "p99_ms"), 3),
        **{
            f"{side}_{name}": median(side, name)
            for side in ("attacked", "control", "quiet")
            for name in ("p50_ms", "p99_ms", "attacks_per_s")
        },
        "pushes": sum(each.pushes for each in rounds),
        "failed": sum(each.failed for each in rounds),
        "attacks_refused": sum(each.refused for each in rounds),
    }
