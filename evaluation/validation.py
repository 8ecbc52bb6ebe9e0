"""Executable validation (tab:redis): the product's Lua on a real store, driven by independent TCP clients.

Stale release: a live goes from A to B and back to A. Control plane, old A, B and new A are four clients with
connections of their own; old A's requests come late. A release is stale when old A asked for it after the reassignment
was acknowledged, and was given input; what was under way at that moment is not counted, whichever came first. For
contrast the same with a mutant of release_input.lua that looks at the WorkerID alone.

Lost response: a proxy drops the store's answer to a reassignment, and the connection with it; the client cannot know
what happened and repeats the operation with its id. Then the store is asked what it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import matplotlib.pyplot as plt

from dhsched.errors import StoreUnavailable
from dhsched.local.ports import free_port
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.connect import LinkSettings
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, load, sources
from evaluation import guards
from evaluation.experiment import Experiment, Finding, Part, Row, Size, Tables
from evaluation.files import save
from evaluation.statistics import share_interval, the

FENCE = """\
  if selected ~= worker_id or number(epoch) <= floor
    or r ~= USUAL and (r.epoch ~= epoch or r.pull_no ~= pull_no or r.unclaimed) then
"""
WORKER_ID_ONLY = "  if selected ~= worker_id or r.unclaimed then\n"
AT_ONCE = 300  # Schedules under way.
OLD_PULLS = 4
BEFORE_MS = 200.0  # Old A asks from this long before the reassignment to as long after it, as in authority.py.
DELAYS_MS = (100.0, 250.0, 500.0)
DELAY_MS = 250.0
LOST_CLIENTS = 16
RETRIES_MAX = 50
QUICK_LINK = LinkSettings(backoff_first_s=0.005, backoff_max_s=0.1)
CHUNK_BYTES = 65_536


def worker_id_only() -> dict[str, Script]:
    text = sources()["release_input"]
    if text.count(FENCE) != 1:
        raise AssertionError("release_input.lua has its fence in other words now: bring FENCE up to date")
    return load({"release_input": text.replace(FENCE, WORKER_ID_ONLY)})


# -- stale releases


@dataclass(frozen=True, slots=True)
class Clients:
    """One connection each."""

    control: RedisStore
    old_a: RedisStore
    b: RedisStore
    new_a: RedisStore
    workers: tuple[str, str]


def run_returns(guard: str, delay_ms: float, seed: int, schedules: int) -> list[Row]:
    return asyncio.run(_run_returns(guard, delay_ms, seed, schedules))


async def _run_returns(guard: str, delay_ms: float, seed: int, schedules: int) -> list[Row]:
    scripts = worker_id_only() if guard == "worker-id" else None
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Embedded(appendfsync="no", port=free_port()))
        stores = [
            await stack.enter_async_context(
                await RedisStore.open(server.tcp_address, limits=guards.LIMITS, scripts=scripts)
            )
            for _ in range(4)
        ]
        workers = [await _register(stores[0], name) for name in ("a", "b")]
        clients = Clients(stores[0], stores[1], stores[2], stores[3], (workers[0], workers[1]))
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> tuple[int, int]:
            async with gate:
                return await _return(clients, f"default/l{number}", Random(number), delay_ms)

        results = await asyncio.gather(*(one(number) for number in range(seed, seed + schedules)))
    row: Row = {"guard": guard, "delay_ms": delay_ms, "schedules": schedules}
    late = sum(asked for asked, _ in results)
    return [row | {"late_asked": late, "stale": sum(given > 0 for _, given in results)}]


async def _return(clients: Clients, live: str, rng: Random, delay_ms: float) -> tuple[int, int]:
    """One schedule: how often old A asked after it had been replaced, and how often it was given something."""
    a, b = clients.workers
    control = clients.control
    create = Create(digital_id="anna", fingerprint="f")
    await control.place(live=live, operation="c", cause="create", create=create, candidates=[a])
    pulling = await clients.old_a.pull(live=live, worker=a, epoch=1, after=0, controller="infer-a")
    assert isinstance(pulling, o.Pulling)
    for n in range(1, OLD_PULLS + 1):
        await control.append_input(live=live, kind="text", payload=b"x", producer="p", n=n)
    replaced = asyncio.Event()

    async def old(after_s: float) -> tuple[int, int]:
        await asyncio.sleep(after_s)
        late = replaced.is_set()
        given = await clients.old_a.release_input(
            live=live, worker=a, epoch=1, pull_no=pulling.pull_no, after=0, credit=OLD_PULLS
        )
        return int(late), int(late and isinstance(given, o.Items))

    arrivals = [rng.uniform(0.0, 2 * BEFORE_MS) + rng.expovariate(1 / delay_ms) for _ in range(OLD_PULLS)]
    asking = [asyncio.create_task(old(ms / 1e3)) for ms in arrivals]
    await asyncio.sleep(BEFORE_MS / 1e3)
    await _move(control, live, expected=1, to=b)
    replaced.set()
    back = asyncio.create_task(asyncio.sleep(rng.uniform(300.0, 1_200.0) / 1e3))
    await asyncio.sleep(rng.uniform(100.0, 500.0) / 1e3)
    await _take_up(clients.b, live, b, 2)
    await back
    await _move(control, live, expected=2, to=a)
    await asyncio.sleep(rng.uniform(100.0, 500.0) / 1e3)
    await _take_up(clients.new_a, live, a, 3)
    answers = await asyncio.gather(*asking)
    return sum(late for late, _ in answers), sum(given for _, given in answers)


async def _register(store: RedisStore, name: str) -> str:
    made = await store.register_worker(name=name, boot=name, pool="gpu", capacity=100_000)
    await store.report(worker=made.worker, boot=name)
    return made.worker


async def _move(store: RedisStore, live: str, *, expected: int, to: str) -> None:
    outcome = await store.place(
        live=live, operation=f"m{expected}", cause="reassign", expected=expected, candidates=[to]
    )
    assert isinstance(outcome, o.Committed), outcome


async def _take_up(store: RedisStore, live: str, worker: str, epoch: int) -> None:
    pulling = await store.pull(live=live, worker=worker, epoch=epoch, after=0, controller="infer-b")
    if isinstance(pulling, o.Pulling):
        await store.release_input(
            live=live, worker=worker, epoch=epoch, pull_no=pulling.pull_no, after=pulling.after, credit=1
        )


# -- lost responses


class Cutter:
    """A proxy before the store. Once armed, it drops what the store answers next and hangs up."""

    def __init__(self, server: Address) -> None:
        self.armed = False
        self.cut = 0
        self._server = server

    async def serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(self._server.host, self._server.port)
        asking = asyncio.create_task(_forward(client_in, server_out))
        try:
            while data := await server_in.read(CHUNK_BYTES):
                if self.armed:
                    self.armed = False  # The store has run the command by now.
                    self.cut += 1
                    break
                client_out.write(data)
        finally:
            asking.cancel()
            for end in (client_out, server_out):
                end.transport.abort()


async def _forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(CHUNK_BYTES):
            target.write(data)


@asynccontextmanager
async def cutting(server: Address) -> AsyncIterator[tuple[Cutter, Address]]:
    cutter = Cutter(server)
    listener = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    async with listener:
        yield cutter, Address(host="127.0.0.1", port=listener.sockets[0].getsockname()[1])


def run_lost(seed: int, failures: int) -> list[Row]:
    return asyncio.run(_run_lost(seed, failures))


async def _run_lost(seed: int, failures: int) -> list[Row]:
    logging.getLogger("dhsched").setLevel(logging.ERROR)  # Every lost connection is one on purpose.
    totals = dict.fromkeys(("failures", "same_generation", "no_second_successor", "no_duplicate_charge"), 0)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Embedded(appendfsync="no", port=free_port()))
        direct = await stack.enter_async_context(await RedisStore.open(server.tcp_address, limits=guards.LIMITS))
        a = await _register(direct, "a")
        numbers = iter(range(seed, seed + failures))

        async def client() -> None:
            cutter, address = await stack.enter_async_context(cutting(server.tcp_address))
            store = await stack.enter_async_context(
                await RedisStore.open(address, limits=guards.LIMITS, settings=QUICK_LINK)
            )
            for number in numbers:
                for key, held in (await _lose_one(direct, store, cutter, a, number)).items():
                    totals[key] += held

        await asyncio.gather(*(client() for _ in range(LOST_CLIENTS)))
    return [dict(totals)]


async def _lose_one(direct: RedisStore, store: RedisStore, cutter: Cutter, a: str, number: int) -> dict[str, int]:
    """One reassignment whose answer is lost after the commit, and its retry; what the store holds then."""
    live = f"default/l{number}"
    target = await _register(direct, f"t{number}")
    create = Create(digital_id="anna", fingerprint="f")
    await direct.place(live=live, operation="c", cause="create", create=create, candidates=[a])
    before = cutter.cut
    cutter.armed = True
    answered: Any = None
    for _ in range(RETRIES_MAX):
        try:
            answered = await store.place(
                live=live, operation=f"m{number}", cause="reassign", expected=1, candidates=[target]
            )
            break
        except StoreUnavailable:
            continue
    record = await direct.records.lives.get(live)
    one_commit = record is not None and (record.epoch, record.issued, record.selected) == (2, 2, target)
    slots = await direct.link.call("HLEN", direct.keys.of("slots", target))
    load = await direct.link.call("HGET", direct.keys.of("worker", target), "load")
    same = isinstance(answered, o.Committed) and answered.again and answered.generation.epoch == 2
    return {
        "failures": cutter.cut - before,
        "same_generation": int(same and answered.generation.worker == target),
        "no_second_successor": int(one_commit),
        "no_duplicate_charge": int((slots, int(load)) == (1, 1)),
    }


# -- the experiment


def parts(size: Size) -> list[Part]:
    made: list[Part] = []
    base = size.seed * 1_000_000
    schedules, failures = size.pick(10_000, 200), size.pick(10_000, 100)
    each = size.pick(2_500, 200)
    for guard in ("worker-id", "generation"):
        for first in range(0, schedules, each):
            arguments = {"guard": guard, "delay_ms": DELAY_MS, "seed": base + first, "schedules": each}
            made.append(Part(f"return_{guard}_{first}", run_returns, arguments))
    for delay_ms in DELAYS_MS:
        arguments = {"guard": "worker-id", "delay_ms": delay_ms, "seed": base, "schedules": size.pick(2_000, 200)}
        made.append(Part(f"delay_{delay_ms:g}", run_returns, arguments))
    each = size.pick(2_500, 100)
    for first in range(0, failures, each):
        made.append(Part(f"lost_{first}", run_lost, {"seed": base + first, "failures": each}))
    return made


def tables(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    def summed(prefix: str, keys: tuple[str, ...]) -> list[Row]:
        totals: dict[tuple[Any, ...], Row] = {}
        for row in (row for name, made in rows.items() if name.startswith(prefix) for row in made):
            total = totals.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
            for field, value in row.items():
                if field not in keys:
                    total[field] = total.get(field, 0) + value
        return list(totals.values())

    returns, delays = (summed(prefix, ("guard", "delay_ms")) for prefix in ("return_", "delay_"))
    for row in (*returns, *delays):
        low, high = share_interval(row["stale"], row["schedules"])
        row["share"], row["share_low"], row["share_high"] = (
            round(row["stale"] / row["schedules"], 6),
            round(low, 6),
            round(high, 6),
        )
    return {"validation": returns, "validation_delays": delays, "validation_lost": summed("lost_", ())}


def draw(tables: Tables, folder: Path) -> list[str]:
    figure, axis = plt.subplots(figsize=(5, 3.4))
    rows = tables["validation_delays"]
    axis.plot([row["delay_ms"] for row in rows], [100 * row["share"] for row in rows], marker="o", color="#c0392b")
    ours = the(tables["validation"], guard="generation")
    axis.plot([DELAY_MS], [100 * ours["share"]], "o", color="#0b6e4f")
    axis.axhline(20.2, color="grey", linestyle=":")
    axis.legend(["WorkerID-only mutant", "generation guard", "paper, WorkerID-only"])
    axis.set(xlabel="mean delay of old A's requests (ms)", ylabel="schedules with a stale release (%)")
    return [save(figure, folder, "validation")]


def findings(tables: Tables) -> list[Finding]:
    found = []
    for guard, paper in (("worker-id", "20.2 %"), ("generation", "0.0 %")):
        row = the(tables["validation"], guard=guard)
        found.append(
            Finding(
                f"stale release, A to B to A, {guard} guard",
                paper,
                f"{row['share']:.2%} of {row['schedules']:,} ({row['share_low']:.2%} to {row['share_high']:.2%}); "
                f"{row['late_asked']:,} late requests",
            )
        )
    lost = tables["validation_lost"][0]
    for key, what in (
        ("same_generation", "same generation"),
        ("no_second_successor", "no second successor"),
        ("no_duplicate_charge", "no duplicate charge"),
    ):
        found.append(Finding(f"lost response: {what}", "10,000/10,000", f"{lost[key]:,}/{lost['failures']:,}"))
    return found


def remarks(tables: Tables) -> list[str]:
    each = ", ".join(f"{row['delay_ms']:g} ms {row['share']:.1%}" for row in tables["validation_delays"])
    return [
        f"Times are drawn as in the authority experiment, and pass. WorkerID-only by the mean delay: {each}. The "
        f"guard's zero does not depend on it; the mutant's rate also depends on the machine.",
        "The scripts under test are the product's own files; the mutant differs in one condition.",
    ]


EXPERIMENT = Experiment(
    name="validation",
    title="Executable validation on a real store",
    paper="tab:redis",
    parts=parts,
    tables=tables,
    draw=draw,
    findings=findings,
    remarks=remarks,
    measured=("validation", "validation_delays", "validation_lost"),
    uses=("ownership", "store"),
)
