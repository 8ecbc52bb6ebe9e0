"""The production day (tab:production) as a replay: as many lives at once as at its peak, and its work in proportion.

Real store, Dispatch replicas and Infer-Controllers, Workers of the `null` runtime. 255 Workers of about 196 lives, as
the paper's 51 losses and 9,927 session migrations suggest; hosts are processes with several Workers each
(dhsched/bench/host.py). First all lives are created. Then, at once: pushes at an even rate, creates and ends in the
day's proportion to them, planned moves likewise, and Worker losses: hosts of three Workers are killed, and forked again
from a process that has imported everything. `CASES` says at which rate, and with how many losses; each case is run
three times, and its figures are the medians.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from itertools import cycle, islice
from random import Random
from statistics import median
from typing import Any

import aiohttp

from dhsched.bench.harness import metrics_page, percentile
from dhsched.client.metrics import samples, total
from dhsched.dispatch.recovery.safety import violations
from dhsched.errors import DhschedError
from dhsched.store.records import Records
from evaluation.deployment import WAIT_S, Deployment, deployment
from evaluation.experiment import Experiment, Part, Row, Size
from evaluation.production_cases import (
    BIG_HOST_WORKERS,
    BIG_HOSTS,
    CAPACITY,
    CASES,
    DAY,
    LOSS_S,
    PEAK,
    PUSHES,
    ROLES,
    RUNS,
    SMALL_HOST_WORKERS,
    SMALL_HOSTS,
    Case,
)
from evaluation.production_report import draw, findings, remarks
from evaluation.production_timeline import by_second
from evaluation.pushing import Pusher
from evaluation.statistics import grouped

ISSUERS = 32
PUSHERS = 4
LIVES_PER_PUSHER = 8_000
TICK_S = 0.02
REPLAY_MAX_S = 1_000.0
RESTART_S = 2.0
QUIET_S = 40.0  # Lives are looked at once more within half a minute of their claim; upkeep is measured after that.
UPKEEP_S = 20.0
NOTICE_S = 8.0
SETTLE_S = 180.0


def run(case: str, seed: int, scale: float, pushes: int, replay_max_s: float) -> list[Row]:
    return asyncio.run(_run(case, seed, scale, pushes, replay_max_s))


async def _run(name: str, seed: int, scale: float, pushes: int, replay_max_s: float) -> list[Row]:
    case = CASES[name]
    lives = round(PEAK * scale)
    capacity = max(4, round(CAPACITY * scale))
    async with deployment(dispatch=2, infer=2) as made:
        for number in range(BIG_HOSTS):
            await made.add_host(f"big{number}", workers=BIG_HOST_WORKERS, capacity=capacity)
        for number in range(SMALL_HOSTS):
            await made.add_host(f"small{number}", workers=SMALL_HOST_WORKERS, capacity=capacity)
        await made.until_workers(BIG_HOSTS * BIG_HOST_WORKERS + SMALL_HOSTS * SMALL_HOST_WORKERS, WAIT_S)
        began = time.monotonic()
        replay = Replay(made, Random(seed), case, lives, pushes, capacity, began + replay_max_s)
        await replay.fill()
        filled_s = time.monotonic() - began
        upkeep = None
        if name == "cost":
            await asyncio.sleep(QUIET_S * min(1.0, scale * 10))
            upkeep = await used(made, asyncio.sleep(UPKEEP_S))
        replay.give_up = time.monotonic() + replay_max_s
        play = await used(made, replay.play())
        row: Row = {"case": name, "rate": case.per_s} | await replay.result() | costs(play, upkeep, len(replay.took()))
        row |= {"filled_s": round(filled_s, 1), "played_s": round(play["wall"], 1)}
        return [row, *({"case": name} | second for second in replay.timeline())]


async def used(made: Deployment, work: Coroutine[Any, Any, None]) -> dict[str, float]:
    """CPU seconds by role while this is done, and how long it took."""
    before, began = made.cpu_s(), time.monotonic()
    await work
    wall_s, after = time.monotonic() - began, made.cpu_s()
    return {role: after[role] - before[role] for role in ROLES} | {"wall": wall_s}


def costs(play: dict[str, float], upkeep: dict[str, float] | None, pushes: int) -> Row:
    """CPU seconds of each role during the replay; CPU time of store and controllers for each push, where upkeep was
    measured also without what as long a time costs when nothing is pushed."""
    row: Row = {f"cpu_{role}_s": round(play[role], 2) for role in ROLES}
    gross = (play["store"] + play["infer"]) * 1e6 / max(1, pushes)
    net: float | str = ""
    if upkeep is not None:
        idle = (upkeep["store"] + upkeep["infer"]) / upkeep["wall"] * play["wall"]
        net = round(gross - idle * 1e6 / max(1, pushes), 1)
    return row | {"push_us": round(gross, 1), "push_net_us": net}


class Replay:
    """One replay, and what it counted."""

    def __init__(
        self, made: Deployment, rng: Random, case: Case, lives: int, pushes: int, capacity: int, give_up: float
    ) -> None:
        self.made, self.rng, self.case = made, rng, case
        self.wanted, self.pushes, self.capacity = lives, pushes, capacity
        self.give_up = give_up
        self.killed_at: list[float] = []
        self.began = 0.0
        self.fill_ms: list[float] = []
        self.create_ms: list[float] = []
        self.pushers: list[Pusher] = []
        self.counts: Counter[str] = Counter()
        self.gave_out = ""
        # Lives that are pushed to stay to the end; the others come and go.
        self._stable = [f"s{n}" for n in range(min(lives // 2, PUSHERS * LIVES_PER_PUSHER))]
        self._others = [f"o{n}" for n in range(lives - len(self._stable))]
        self._next = len(self._others)

    async def fill(self) -> None:
        """Every live of the peak, at once."""
        try:
            self.fill_ms = await self.made.create_all(iter([*self._stable, *self._others]), ISSUERS)
            await self.made.until_claimed()
        except (DhschedError, aiohttp.ClientError, TimeoutError) as error:
            self.gave_out = str(error)[:300]

    async def play(self) -> None:
        """Everything of the day at once. Pushes set the pace; the rest keeps to its share of them."""
        self.began = time.monotonic()
        async with AsyncExitStack() as stack:
            urls = islice(cycle([each.url for each in self.made.controllers]), PUSHERS)
            for number, url in enumerate(urls):
                socket = await stack.enter_async_context(self.made.http.ws_connect(f"{url}/v1/stream", max_msg_size=0))
                self.pushers.append(Pusher(self._stable[number::PUSHERS], socket))
            pushing = [asyncio.create_task(self._push(pusher)) for pusher in self.pushers]
            done = asyncio.Event()
            others = [asyncio.create_task(work(done)) for work in (self._come_and_go, self._move, self._lose)]
            try:
                await asyncio.gather(*pushing)
            finally:
                done.set()
                await asyncio.gather(*others)
            for pusher in self.pushers:
                await pusher.finish()

    def took(self) -> list[tuple[float, float]]:
        """When each accepted item was pushed, and how many ms its answer took."""
        return [each for pusher in self.pushers for each in pusher.took]

    def timeline(self) -> list[Row]:
        return by_second(self.took(), self.killed_at, self.began)

    def without_losses(self) -> list[float]:
        """The ms of the items that were pushed in seconds without a loss."""
        return [ms for at, ms in self.took() if not any(0 <= at - killed < LOSS_S for killed in self.killed_at)]

    @property
    def pushed(self) -> int:
        return sum(pusher.answered for pusher in self.pushers)

    async def _push(self, pusher: Pusher) -> None:
        share, sent, began = -(-self.pushes // PUSHERS), 0, time.monotonic()
        rate = self.case.per_s / PUSHERS
        while sent < share and time.monotonic() < self.give_up:
            due = min(share, round((time.monotonic() - began) * rate)) - sent
            await pusher.push(due)
            sent += due
            await asyncio.sleep(TICK_S)

    async def _come_and_go(self, done: asyncio.Event) -> None:
        """Creates in the day's proportion to pushes, each after an end: the number of lives stays."""
        urls = cycle([each.url for each in self.made.replicas])
        while not done.is_set():
            due = self.pushed * DAY["creates"] // DAY["pushes"]
            if self.counts["creates"] >= due:
                await asyncio.sleep(0.005)
                continue
            at = self.rng.randrange(len(self._others))
            async with self.made.http.post(f"{next(urls)}/v1/lives/{self._others[at]}/end", json={}) as answer:
                self.counts[f"ends_{answer.status}"] += 1
            self._others[at] = f"o{self._next}"
            self._next += 1
            self.create_ms.append(await self.made.create(next(urls), self._others[at]))
            self.counts["creates"] += 1

    async def _move(self, done: asyncio.Event) -> None:
        """Planned moves of single lives, in proportion."""
        urls = cycle([each.url for each in self.made.replicas])
        while not done.is_set():
            due = self.pushed * DAY["moves"] // DAY["pushes"]
            if self.counts["moves"] >= due:
                await asyncio.sleep(0.05)
                continue
            live = self.rng.choice(self._stable)
            [(epoch, _)] = await self.made.owners([f"default/{live}"])
            body = {"expected_epoch": epoch}
            async with self.made.http.post(f"{next(urls)}/v1/lives/{live}/reassign", json=body) as answer:
                self.counts["moved"] += answer.status in (200, 201)
                self.counts["moves_refused"] += answer.status not in (200, 201)
            self.counts["moves"] += 1

    async def _lose(self, done: asyncio.Event) -> None:
        """The case's Worker losses, spread over the pushes: a host of three at a time."""
        for number in range(self.case.hosts_lost):
            due = self.pushes * (number + 1) // (self.case.hosts_lost + 1)
            while self.pushed < due and not done.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), TICK_S)
            if time.monotonic() > self.give_up:
                return
            name = f"small{number}"
            self.made.kill_host(name)
            self.killed_at.append(time.monotonic())
            self.counts["losses"] += SMALL_HOST_WORKERS
            await asyncio.sleep(RESTART_S)
            await self.made.add_host(name, workers=SMALL_HOST_WORKERS, capacity=self.capacity)

    async def result(self) -> Row:
        settled_s = await self._settle()
        metrics = [await metrics_page(each.url) for each in (*self.made.replicas, *self.made.controllers)]
        push_ms, other_ms = [ms for _, ms in self.took()], self.without_losses()
        refused = sum((pusher.refused for pusher in self.pushers), Counter[str]())
        found = await self._safety()
        row: Row = {
            "lives_wanted": self.wanted,
            "lives": found["lives"],
            "workers": len(await self.made.worker_rows()),
            "fill_creates_per_s": 0.0,
            "creates": self.counts["creates"],
            "pushes": len(push_ms),
            "pushes_refused": refused.total(),
            "losses": self.counts["losses"],
            "moves": self.counts["moved"],
            "moves_refused": self.counts["moves_refused"],
            "migrations": found["migrated"],
            "create_p50_ms": percentile(self.create_ms, 0.5),
            "create_p99_ms": percentile(self.create_ms, 0.99),
            "fill_create_p99_ms": percentile(self.fill_ms, 0.99),
            "select_p99_ms": round(quantile(metrics, "dhsched_select_seconds", 0.99) * 1e3, 3),
            "push_p50_ms": percentile(push_ms, 0.5),
            "push_p99_ms": percentile(push_ms, 0.99),
            "push_p999_ms": percentile(push_ms, 0.999),
            "push_other_p99_ms": percentile(other_ms, 0.99),
            "push_other_percent": round(100 * len(other_ms) / max(1, len(push_ms)), 1),
            "push_service_p99_ms": round(quantile(metrics, "dhsched_push_seconds", 0.99) * 1e3, 3),
            "overshoots": found["overshoots"],
            "dual_owners": found["dual_owners"],
            "stale_releases_refused": round(sum(total(page, "dhsched_stale_releases_total") for page in metrics)),
            "unclaimed_at_end": found["unclaimed"],
            "settled_s": round(settled_s, 1),
        }
        row |= {f"memory_{role}_mb": value for role, value in self.made.memory_mb().items()}
        return row | {"gave_out": self.gave_out}

    async def _settle(self) -> float:
        """Until every live is claimed again after the last loss, which takes a while to be noticed."""
        began = time.monotonic()
        await asyncio.sleep(NOTICE_S)
        while time.monotonic() - began < SETTLE_S:
            owners = await self.made.owners([f"default/{name}" for name in (*self._stable, *self._others)])
            if all(active for _, active in owners):
                break
            await asyncio.sleep(1.0)
        return time.monotonic() - began

    async def _safety(self) -> dict[str, int]:
        """The store itself is asked: every live's owner, every Worker's slots."""
        owners = await self.made.owners([f"default/{name}" for name in (*self._stable, *self._others)])
        overshoots = dual = 0
        async with await Records.open(self.made.server.address) as records:
            for row in await self.made.worker_rows():
                seen = await violations(records, row["worker"])
                overshoots += seen.overshoot
                dual += len(seen.dual_owners)
        return {
            "lives": sum(epoch > 0 for epoch, _ in owners),
            "unclaimed": sum(not active for _, active in owners),
            "migrated": sum(max(0, epoch - 1) for epoch, _ in owners),
            "overshoots": overshoots,
            "dual_owners": dual,
        }


def quantile(pages: list[str], name: str, share: float) -> float:
    """A quantile of a histogram over all processes, linear within its bucket."""
    buckets: Counter[float] = Counter()
    for page in pages:
        for each in samples(page):
            if each.name == f"{name}_bucket":
                buckets[float(each.labels["le"])] += round(each.value)
    if not buckets[float("inf")]:
        return 0.0
    wanted = share * buckets[float("inf")]
    below, low = 0.0, 0.0
    for bound in sorted(buckets):
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / max(1e-9, buckets[bound] - below)
        below, low = buckets[bound], bound
    return low


def parts(size: Size) -> list[Part]:
    full: dict[str, Any] = {"scale": 1.0, "pushes": PUSHES, "replay_max_s": REPLAY_MAX_S}
    if size.quick:
        full = {"scale": 0.02, "pushes": 6_000, "replay_max_s": 120.0}
    return [
        Part(f"{case}_{number}", run, {"case": case, "seed": size.seed + number, **full})
        for number in range(size.pick(RUNS, 1))
        for case in CASES
    ]


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Each case's medians over its runs, the runs, and each case's first run second by second."""
    runs, timelines = list[Row](), dict[str, list[Row]]()
    for whole, *seconds in rows.values():
        runs.append(whole | {"fill_creates_per_s": round(whole["lives"] / max(0.1, whole["filled_s"]), 1)})
        timelines.setdefault(whole["case"], seconds)
    medians = []
    for (case,), some in grouped(runs, "case").items():
        row: Row = {"case": case, "runs": len(some)}
        for field in some[0].keys() - row.keys():
            values = [one[field] for one in some]
            row[field] = next(filter(None, values), "") if isinstance(values[0], str) else round(median(values), 3)
        medians.append({field: row[field] for field in ("case", "runs", *some[0]) if field in row})
    timeline = [second for some in timelines.values() for second in some]
    return {"production": medians, "production_runs": runs, "production_timeline": timeline}


EXPERIMENT = Experiment(
    name="production",
    title="The production day as a replay",
    paper="tab:production",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    measured=("production", "production_runs", "production_timeline"),
    alone=True,
    uses=("ownership", "placement", "store", "dispatch", "infer", "worker"),
)
