"""The production day (tab:production) as a replay: as many lives at once as at its peak, and its work in proportion.

Real store, Dispatch replicas and Infer-Controllers, Workers of the `null` runtime. 255 Workers of about 196 lives, as
the paper's 51 losses and 9,927 session migrations suggest; hosts are processes with several Workers each
(dhsched/bench/host.py). First all lives are created. Then, at once: pushes at an even rate, creates and ends in the
day's proportion to them, planned moves likewise, and every Worker loss of the day, spread over the replay: hosts of
three Workers are killed and started again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import matplotlib.pyplot as plt

from dhsched.bench.harness import metrics_page, percentile
from dhsched.client.metrics import samples, total
from dhsched.dispatch.recovery.safety import violations
from dhsched.errors import DhschedError
from dhsched.store.records import Records
from evaluation.deployment import WAIT_S, Deployment, deployment
from evaluation.experiment import Experiment, Finding, Part, Row, Size, Tables
from evaluation.files import save
from evaluation.pushing import Pusher

DAY = {"creates": 125_728, "pushes": 18_470_000, "migrations": 9_927, "moves": 2_040, "losses": 51}
PEAK = 49_987
PAPER_P99_MS = {"create": 98.3, "select": 9.9, "push": 16.5}
CAPACITY = 206
BIG_HOSTS, BIG_HOST_WORKERS = 4, 51
SMALL_HOSTS, SMALL_HOST_WORKERS = 17, 3
ISSUERS = 32
PUSHERS = 4
LIVES_PER_PUSHER = 8_000
PUSHES = 1_000_000
PUSH_S = 600.0  # They are spread over this: 8 times as dense as the day's average.
TICK_S = 0.02
REPLAY_MAX_S = 1_000.0
RESTART_S = 2.0
NOTICE_S = 8.0
SETTLE_S = 180.0


def run(seed: int, scale: float, pushes: int, replay_max_s: float) -> list[Row]:
    return asyncio.run(_run(seed, scale, pushes, replay_max_s))


async def _run(seed: int, scale: float, pushes: int, replay_max_s: float) -> list[Row]:
    lives = round(PEAK * scale)
    capacity = max(4, round(CAPACITY * scale))
    async with deployment(dispatch=2, infer=2) as made:
        for number in range(BIG_HOSTS):
            await made.add_host(f"big{number}", workers=BIG_HOST_WORKERS, capacity=capacity)
        for number in range(SMALL_HOSTS):
            await made.add_host(f"small{number}", workers=SMALL_HOST_WORKERS, capacity=capacity)
        await made.until_workers(BIG_HOSTS * BIG_HOST_WORKERS + SMALL_HOSTS * SMALL_HOST_WORKERS, WAIT_S)
        began = time.monotonic()
        replay = Replay(made, Random(seed), lives, pushes, capacity, began + replay_max_s)
        await replay.fill()
        filled_s = time.monotonic() - began
        began = time.monotonic()
        replay.give_up = began + replay_max_s
        await replay.play()
        played_s = time.monotonic() - began
        row = await replay.result()
        return [row | {"filled_s": round(filled_s, 1), "played_s": round(played_s, 1)}]


class Replay:
    """One replay, and what it counted."""

    def __init__(self, made: Deployment, rng: Random, lives: int, pushes: int, capacity: int, give_up: float) -> None:
        self.made, self.rng, self.wanted, self.pushes, self.capacity = made, rng, lives, pushes, capacity
        self.give_up = give_up
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

    @property
    def pushed(self) -> int:
        return sum(pusher.answered for pusher in self.pushers)

    async def _push(self, pusher: Pusher) -> None:
        share, sent, began = -(-self.pushes // PUSHERS), 0, time.monotonic()
        rate = PUSHES / PUSH_S / PUSHERS
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
        """All of the day's Worker losses, spread over the pushes: a host of three at a time."""
        for number in range(SMALL_HOSTS):
            due = self.pushes * (number + 1) // (SMALL_HOSTS + 1)
            while self.pushed < due and not done.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(done.wait(), TICK_S)
            if time.monotonic() > self.give_up:
                return
            name = f"small{number}"
            self.made.workers[name].kill()
            self.counts["losses"] += SMALL_HOST_WORKERS
            await asyncio.sleep(RESTART_S)
            await self.made.add_host(name, workers=SMALL_HOST_WORKERS, capacity=self.capacity)

    async def result(self) -> Row:
        settled_s = await self._settle()
        metrics = [await metrics_page(each.url) for each in (*self.made.replicas, *self.made.controllers)]
        push_ms = [took for pusher in self.pushers for took in pusher.took_ms]
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
            "push_service_p99_ms": round(quantile(metrics, "dhsched_push_seconds", 0.99) * 1e3, 3),
            "overshoots": found["overshoots"],
            "dual_owners": found["dual_owners"],
            "stale_releases_refused": round(sum(total(page, "dhsched_stale_releases_total") for page in metrics)),
            "unclaimed_at_end": found["unclaimed"],
            "settled_s": round(settled_s, 1),
        }
        row |= {f"memory_{role}_mb": value for role, value in self.made.memory_mb().items()}
        row |= {f"cpu_{role}_s": value for role, value in self.made.cpu_s().items()}
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
    arguments: dict[str, Any] = {"seed": size.seed, "scale": 1.0, "pushes": PUSHES, "replay_max_s": REPLAY_MAX_S}
    if size.quick:
        arguments |= {"scale": 0.02, "pushes": 20_000, "replay_max_s": 120.0}
    return [Part("replay", run, arguments)]


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    (row,) = rows["replay"]
    return {"production": [row | {"fill_creates_per_s": round(row["lives"] / max(0.1, row["filled_s"]), 1)}]}


def draw(tables: Tables, folder: Path) -> list[str]:
    (row,) = tables["production"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    names = list(PAPER_P99_MS)
    axes[0].bar(
        [n - 0.2 for n in range(3)], list(PAPER_P99_MS.values()), 0.38, color="#1f5fa8", label="paper, production"
    )
    ours = [row[f"{name}_p99_ms"] for name in names]
    axes[0].bar([n + 0.2 for n in range(3)], ours, 0.38, color="#0b6e4f", label="ours, replay")
    axes[0].set_xticks(range(3), names)
    axes[0].set(yscale="log", ylabel="P99 (ms)")
    axes[0].legend()
    roles = ("store", "dispatch", "infer", "workers")
    axes[1].bar(roles, [row[f"memory_{role}_mb"] for role in roles], color="#56b870")
    axes[1].set(ylabel="resident memory (MiB)", title=f"{row['lives']:,} lives")
    return [save(figure, folder, "production")]


def findings(tables: Tables) -> list[Finding]:
    (row,) = tables["production"]
    seconds = max(1.0, row["played_s"])
    return [
        Finding("lives at once", f"{PEAK:,}", f"{row['lives']:,} of {row['lives_wanted']:,} asked for"),
        Finding(
            "pushes",
            f"{DAY['pushes']:,} a day (214/s on average)",
            f"{row['pushes']:,} in {seconds:.0f} s ({row['pushes'] / seconds:,.0f}/s); "
            f"{row['pushes_refused']:,} were refused",
        ),
        Finding("creates beside the pushes", f"{DAY['creates']:,} a day", f"{row['creates']:,}, and the fill before"),
        Finding("Workers lost", str(DAY["losses"]), str(row["losses"])),
        Finding(
            "session migrations",
            f"{DAY['migrations']:,}; {DAY['moves']:,} Worker-level",
            f"{row['migrations']:,} generations after the first, {row['moves']:,} of them planned moves",
        ),
        Finding(
            "CreateLive P99",
            f"{PAPER_P99_MS['create']} ms",
            f"{row['create_p99_ms']:.1f} ms (while filling, {ISSUERS} at once: {row['fill_create_p99_ms']:.1f} ms)",
        ),
        Finding("WorkerSelect P99", f"{PAPER_P99_MS['select']} ms", f"{row['select_p99_ms']:.3f} ms"),
        Finding(
            "PushText P99",
            f"{PAPER_P99_MS['push']} ms",
            f"{row['push_p99_ms']:.1f} ms at the client, {row['push_service_p99_ms']:.1f} ms in the controller (P50 at "
            f"the client: {row['push_p50_ms']:.1f} ms)",
            "all of it is on two cores here, clients and Workers too, and a day's losses come in ten minutes: each "
            "puts some 600 lives on other Workers and starts three Workers anew on the same cores. How much of the P99 "
            "is theirs was not taken apart.",
        ),
        Finding("dual owners, overshoots", "0, 0", f"{row['dual_owners']}, {row['overshoots']}"),
        Finding(
            "memory: store, dispatch, infer, Workers",
            "not given",
            ", ".join(f"{row[f'memory_{role}_mb']:.0f}" for role in ("store", "dispatch", "infer", "workers")) + " MiB",
        ),
    ]


def remarks(tables: Tables) -> list[str]:
    (row,) = tables["production"]
    said = [
        f"Scaled down: a day's pushes to {row['pushes']:,}, creates and planned moves in proportion, Workers "
        f"({row['workers']}) in {BIG_HOSTS + SMALL_HOSTS} processes, no GPU, no media, one machine for everything. Not "
        "scaled: lives at once, and Worker losses, which come much closer together than in a day.",
        f"{row['unclaimed_at_end']} lives were without a claimed owner {row['settled_s']:.0f} s after the replay.",
    ]
    if row["gave_out"]:
        said.append(f"What gave out first: {row['gave_out']}")
    return said


EXPERIMENT = Experiment(
    name="production",
    title="The production day as a replay",
    paper="tab:production",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    measured=("production",),
    alone=True,
    uses=("ownership", "placement", "store", "dispatch", "infer", "worker"),
)
