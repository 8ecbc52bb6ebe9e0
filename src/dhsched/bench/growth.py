"""CPU time and memory of a deployment as it grows: what a create, a push, an idle live and a report cost at each size.

Every role is a process of its own; Workers run the `null` runtime, many in one process (host.py), and this process is
the load. Two fleets are grown, one after the other. The first has Workers without lives: `report_us_<n>` is the CPU
time of all roles per report at n Workers, without what the same roles take when there is no Worker at all. The second
has lives, `lives_per_worker` on each Worker: `create_us_<n>` is the CPU time per create, from the request to the claim,
for the last lives before n; `idle_us_<n>` per live and second while nothing happens to n lives, reports and everything
else of the fleet included; `push_us_<n>` per item from the push to the ack, at an even rate over all lives, without
what the same time costs without pushes. `idle_cores_<n>` is the idle time as cores, `memory_kb_<n>` the memory per
live; both by role too.

Each new live is looked at once more within half a minute, and its phases are measured. So idle lives are measured
`settle_s` after the last claim; `settling_cores_<n>` is the time right after the claim. CPU time is read from /proc, so
other programs on the machine hardly change it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from dhsched.bench.harness import until_claimed
from dhsched.client.stream import frames_of
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.pids import cpu_s, memory_bytes
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore

POOL, DIGITAL_ID = "gpu", "anna"
ROLES = ("store", "dispatch", "infer", "workers")
START_S = 300.0  # Workers that are not ready by then end the benchmark with an error.
CLAIM_S = 600.0  # Lives that are not claimed by then end the benchmark with an error.
ACK_S = 60.0  # Items that are not acked by then end the benchmark with an error.
WORKERS_PER_HOST = 50
STEADY_S = 3.0  # Wait after the start of Workers, before their reports are measured.
ISSUERS = 16  # Creates under way at once.
CREATE_WAIT_S = 60  # A create waits for a Worker that starts too many lives already.
CREATES = 500  # Creates that are measured before each size, or all of them if there are fewer.
PUSH_S = 0.02  # Time between two frames.
COMMANDS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    lives: tuple[int, ...] = (1_000, 10_000, 50_000, 100_000)
    workers: tuple[int, ...] = (10, 100, 1_000)
    lives_per_worker: int = 200
    seconds: float = 20.0
    settle_s: float = 40.0
    rate: int = 500
    dispatch: int = 2
    infer: int = 2


async def bench_growth(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Grow a fleet of Workers, then a fleet of lives, and return the figures of all sizes."""
    result: dict[str, Any] = {"seconds": size.seconds, "lives_per_worker": size.lives_per_worker}
    if size.workers:
        async with running(size, say) as fleet:
            result |= {"server": fleet.server, **await fleet.grow_workers(sorted(size.workers))}
    if size.lives:
        async with running(size, say) as fleet:
            result |= {"server": fleet.server, **await fleet.grow_lives(sorted(size.lives))}
    return result


class Usage:
    """CPU seconds, context switches and commands of all roles in one span of time."""

    def __init__(self, wall_s: float, cpu: dict[str, float], switches: dict[str, int], commands: Counter[str]) -> None:
        self.wall_s, self.cpu, self.switches, self.commands = wall_s, cpu, switches, commands

    @property
    def cores(self) -> dict[str, float]:
        return {role: seconds / self.wall_s for role, seconds in self.cpu.items()}

    def without(self, idle: Usage) -> dict[str, float]:
        """Return the CPU seconds by role beyond what as long a time takes at the rates of `idle`."""
        return {role: seconds - idle.cores[role] * self.wall_s for role, seconds in self.cpu.items()}


class Fleet:
    """The deployment that is measured, and its load."""

    def __init__(
        self,
        size: Size,
        say: Callable[[str], None],
        server: Embedded,
        store: RedisStore,
        processes: Deployment,
        http: aiohttp.ClientSession,
    ) -> None:
        self._size, self._say = size, say
        self._server, self._store, self._processes, self._http = server, store, processes, http
        self._workers = 0
        self._lives = 0

    @property
    def server(self) -> str:
        """The store's name and version."""
        return str(self._store.link.server)

    # -- the two fleets

    async def grow_workers(self, sizes: Sequence[int]) -> dict[str, Any]:
        await asyncio.sleep(STEADY_S)
        empty = await self._idle("no Workers")
        found: dict[str, Any] = {}
        for count in sizes:
            await self._add_workers(count)
            await asyncio.sleep(STEADY_S)
            beats = await self._beats()
            usage = await self._idle(f"{count} Workers")
            reports = max(1, await self._beats() - beats)
            found[f"report_us_{count}"] = micros(usage.without(empty), reports)
            found |= by_role(f"report_us_{count}", usage.without(empty), 1e6 / reports)
        return found

    async def grow_lives(self, sizes: Sequence[int]) -> dict[str, Any]:
        size, found = self._size, dict[str, Any]()
        for lives in sizes:
            await self._add_workers(-(-lives // size.lives_per_worker))
            await self._create(max(self._lives, lives - CREATES))
            creates = lives - self._lives
            used = await self._used(self._create(lives))
            settling = await self._idle(f"{lives} lives, just claimed")
            await asyncio.sleep(size.settle_s)
            memory = {role: sum(map(memory_bytes, pids)) / 1024 / lives for role, pids in self._pids().items()}
            idle = await self._idle(f"{lives} lives on {self._workers} Workers")
            pushes = round(size.rate * size.seconds)
            pushed = await self._used(self._push(pushes))
            name = short(lives)
            found |= {
                f"create_us_{name}": micros(used.without(idle), creates),
                f"push_us_{name}": micros(pushed.without(idle), pushes),
                f"idle_us_{name}": micros(idle.cpu, lives * idle.wall_s),
                f"idle_cores_{name}": round(sum(idle.cores.values()), 4),
                f"settling_cores_{name}": round(sum(settling.cores.values()), 4),
                f"memory_kb_{name}": round(sum(memory.values()), 2),
                **by_role(f"push_us_{name}", pushed.without(idle), 1e6 / pushes),
                **by_role(f"idle_cores_{name}", idle.cores, 1.0, digits=4),
                **by_role(f"memory_kb_{name}", memory, 1.0, digits=2),
            }
            self._say(f"{lives} lives: { ({key: value for key, value in found.items() if key.endswith(f'_{name}')}) }")
        return found

    # -- growth and load

    async def _add_workers(self, count: int) -> None:
        urls = ",".join(await self._processes.dispatch_urls())
        while self._workers < count:
            some = min(WORKERS_PER_HOST, count - self._workers)
            name = f"host-{self._workers}"
            # The replicas share the Workers as they would with many clients: each host begins with another one.
            first = urls.split(",")[self._workers // WORKERS_PER_HOST % self._size.dispatch :]
            replicas = ",".join(dict.fromkeys([*first, *urls.split(",")]))
            options = ("--workers", str(some), "--capacity", str(self._size.lives_per_worker * 5 // 4), "--pool", POOL)
            where = ("--dispatch", replicas, "--locks", str(self._processes.folder))
            self._processes.workers[name] = await self._processes.start(
                name, "--name", name, *options, *where, module="dhsched.bench.host"
            )
            self._workers += some
        await self._processes.until_workers(self._workers, START_S)

    async def _create(self, count: int) -> None:
        """Create lives until there are `count`, and wait until all are claimed."""
        names = iter([f"l{n}" for n in range(self._lives, count)])
        self._lives = count
        urls = await self._processes.dispatch_urls()

        async def issue(url: str) -> None:
            for name in names:
                body = {"digital_id": DIGITAL_ID, "live_id": name}
                async with self._http.post(f"{url}/v1/lives?wait_s={CREATE_WAIT_S}", json=body) as answer:
                    if answer.status not in (200, 201):  # 200: the replica has repeated a call to the store.
                        raise DhschedError(f"create of {name} was answered {answer.status}: {await answer.text()}")

        await asyncio.gather(*(issue(url) for url in islice(cycle(urls), ISSUERS)))
        await until_claimed(self._store, count, CLAIM_S)

    async def _push(self, count: int) -> None:
        """Push `count` items at an even rate, spread over all lives and both controllers, and wait for the acks."""
        urls = await self._processes.infer_urls()
        await asyncio.gather(*(self._push_to(url, number, count // len(urls)) for number, url in enumerate(urls)))

    async def _push_to(self, url: str, number: int, count: int) -> None:
        lives = [f"l{n}" for n in range(number, self._lives, self._size.infer)]
        step = max(1, len(lives) // count)
        chosen = list(islice(cycle(lives[::step]), count))
        rate = self._size.rate / self._size.infer
        began, sent, answered = time.monotonic(), 0, 0
        async with self._http.ws_connect(f"{url}/v1/stream", max_msg_size=0) as socket:
            while answered < count:
                due = min(count, round((time.monotonic() - began) * rate))
                if due > sent:
                    for frame in frames_of(
                        msgspec.json.encode({"live": each, "text": "Hi."}) for each in chosen[sent:due]
                    ):
                        await socket.send_str(frame)
                    sent = due
                try:
                    message = await socket.receive(PUSH_S if sent < count else ACK_S)
                except TimeoutError:
                    if sent < count:
                        continue
                    raise DhschedError(f"{count - answered} items were not answered within {ACK_S:g} s") from None
                answers = json.loads(message.data)
                if refused := [each for each in answers if "problem" in each]:
                    raise DhschedError(f"an item was refused: {refused[0]}")
                answered += len(answers)

    # -- measurements

    async def _idle(self, what: str) -> Usage:
        usage = await self._used(asyncio.sleep(self._size.seconds))
        cores = {role: round(value, 4) for role, value in usage.cores.items()}
        wakes = {role: round(count / usage.wall_s) for role, count in usage.switches.items()}
        self._say(f"{what}: {sum(cores.values()):.3f} cores {cores}; wake-ups a second {wakes}")
        total = sum(count for name, count in usage.commands.items() if name.endswith(" calls"))
        self._say(f"  {total / usage.wall_s:.0f} commands a second; by the store's time (us a second, calls a second):")
        times = Counter({name[:-5]: count for name, count in usage.commands.items() if name.endswith(" usec")})
        for name, took in times.most_common(COMMANDS_SHOWN):
            self._say(f"  {name:24} {took / usage.wall_s:8.0f} {usage.commands[f'{name} calls'] / usage.wall_s:8.1f}")
        return usage

    async def _used(self, work: Any) -> Usage:
        pids = self._pids()
        before = await self._commands()
        began = time.monotonic()
        cpu = {role: sum(map(cpu_s, some)) for role, some in pids.items()}
        switches = {role: sum(map(wake_ups, some)) for role, some in pids.items()}
        await work
        wall_s = time.monotonic() - began
        return Usage(
            wall_s,
            {role: sum(map(cpu_s, some)) - cpu[role] for role, some in pids.items()},
            {role: sum(map(wake_ups, some)) - switches[role] for role, some in pids.items()},
            await self._commands() - before,
        )

    async def _commands(self) -> Counter[str]:
        """Return calls and time of each command so far. Commands that scripts call are in it, as the server counts."""
        info = await self._store.records.server.info("commandstats")
        found: Counter[str] = Counter()
        for name, value in info.items():
            figures = dict(part.split("=", 1) for part in value.split(","))
            for figure in ("calls", "usec"):
                found[f"{name.removeprefix('cmdstat_')} {figure}"] = int(figures[figure])
        return found

    async def _beats(self) -> int:
        return sum(each.beat for each in (await self._store.records.workers.beats()).values())

    def _pids(self) -> dict[str, list[int]]:
        processes = self._processes
        return {
            "store": [self._server.pid],
            "dispatch": [each.pid for each in processes.replicas],
            "infer": [each.pid for each in processes.controllers],
            "workers": [each.pid for each in processes.workers.values()],
        }


@asynccontextmanager
async def running(size: Size, say: Callable[[str], None]) -> AsyncIterator[Fleet]:
    """Start every process but the Workers, and yield the fleet. Every process ends with this one, however it ends."""
    timeout = aiohttp.ClientTimeout(total=CREATE_WAIT_S + 60)
    async with (
        Embedded(appendfsync="everysec") as server,
        await RedisStore.open(server.address) as store,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http,
        Deployment(server.address.url()) as processes,
    ):
        for n in range(size.dispatch):
            await processes.dispatch(f"dispatch-{n}")
        for n in range(size.infer):
            await processes.infer(f"infer-{n}")
        await processes.configure({DIGITAL_ID: [POOL]})
        yield Fleet(size, say, server, store, processes, http)


def wake_ups(pid: int) -> int:
    """Return how often the threads of a process have gone to sleep so far, hence how often they were woken."""
    status = "".join(each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(map(int, re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)))


def short(count: int) -> str:
    """Return a number of lives as it is written in keys: 200, 1k, 50k."""
    return f"{count // 1000}k" if count % 1000 == 0 and count >= 1000 else str(count)


def micros(cpu: dict[str, float], operations: float) -> float:
    return round(sum(cpu.values()) / operations * 1e6, 2)


def by_role(name: str, values: dict[str, float], scale: float, *, digits: int = 2) -> dict[str, float]:
    return {f"{name}_{role}": round(values[role] * scale, digits) for role in ROLES}
