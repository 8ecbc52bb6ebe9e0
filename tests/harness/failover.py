"""A deployment on a store that fails over: its services, the books of all that they say, and the ways to lose a tail.

Infer-Controllers and Workers run in the test's process. So do Dispatch replicas, unless a test kills them
(`start_dispatch_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

import aiohttp

from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port
from dhsched.local.process import Process
from dhsched.ownership import outcomes as o
from dhsched.store.link.address import Address, parse_address
from dhsched.store.server.embedded import Embedded
from dhsched.store.steps.redis import RedisStore
from tests.harness.clusters import Six, six_nodes
from tests.harness.failover_judge import Books, Granted, Issued, Registered, judge
from tests.harness.failover_load import CLIENTS, Client, Load, Poster, Runtime, plain
from tests.harness.fleet import Fleet, WorkerTask, ended, until, until_so
from tests.harness.replication import Front, Group, Member, replicated

DISPATCH = {"worker_ttl_s": 1.5, "reconcile_s": 1.0, "recover_s": 0.1}
CAPACITY = 32
FLOW_S = 15.0  # A live that consumes nothing for this long after the fault counts as standing still.
CONSUMED_S = 10.0  # An accepted item that no runtime was given for this long counts as never consumed.

How = Literal["power cut", "promotion", "demotion"]
"""The ways in which a store loses the end of its history: its own file ends earlier; a replica that lacks the end takes
its place; it has to copy that replica and is a primary again, while its connections stay."""


class Figures(NamedTuple):
    """What a test has measured: one line of the table at the end of `make failover`. `elsewhere_s` is the longest push
    of a cell that the fault did not touch, where there are several cells."""

    gap_s: float
    items: int
    unknown: int
    lost: int
    resent: int
    repaired: int
    restarted: int
    lives: int
    elsewhere_s: float = nan


class FailoverFleet(Fleet):
    """A fleet with books. Services take the store's `url` of the moment at which they are started; with `settle`, they
    tell nothing before so many replicas have it."""

    def __init__(self, server: Embedded, folder: Path, stack: AsyncExitStack, url: str, settle: int = 0) -> None:
        super().__init__(server, folder, stack)
        self.books = Books()
        self.runtime = Runtime(self.books)
        self.url = url
        self.settle = settle
        self.lives: list[str] = []
        self.processes: dict[str, Process] = {}
        self._ports: dict[str, int] = {}
        self._asked = 0

    @property
    def address(self) -> Address:
        return parse_address(self.url + (f"?replicas={self.settle}" if self.settle else ""))

    # -- services

    async def start_dispatch(self, *, with_loops: bool = True, **given: Any) -> asyncio.Event:
        stop = await super().start_dispatch(with_loops=with_loops, **{**DISPATCH, **given})
        note_numbers(self.replicas[-1].store, self.books)
        return stop

    async def start_infer(self, **given: Any) -> asyncio.Event:
        stop = await super().start_infer(**given)
        note_numbers(self.controllers[-1].context.store, self.books)
        return stop

    async def start_dispatch_process(self, name: str, **settings: object) -> None:
        """Start a replica as a process; one that was killed is started again where it was."""
        if name not in self._ports:
            self._ports[name] = free_port()
            self.dispatch.append(f"http://127.0.0.1:{self._ports[name]}")
        deployment = await self._stack.enter_async_context(Deployment(self.address.url(), folder=self.folder))
        environment = {f"DHSCHED_DISPATCH_{key.upper()}": str(value) for key, value in {**DISPATCH, **settings}.items()}
        self.processes[name] = await deployment.dispatch(name, port=self._ports[name], environment=environment)
        await self.processes[name].until_ready()

    async def start_recording_worker(self, name: str, *dispatch: str) -> WorkerTask:
        """Start a Worker that knows these replicas, all if none is named, and wait until it is ready."""
        everybody, self.dispatch = self.dispatch, [*dispatch] or self.dispatch
        try:
            made = await self.start_worker(self.runtime, name, CAPACITY)
            await until_so(self.ready_workers, lambda found: name in found, f"{name} to be ready")
        finally:
            self.dispatch = everybody
        return made

    async def ready_workers(self, url: str = "") -> dict[str, str]:
        """Return the WorkerIDs of the ready Workers by name."""
        listed = (await self.read("/v1/workers?limit=1000", url)).get("workers", [])
        return {each["worker"].partition("#")[0]: each["worker"] for each in listed if each["status"] == "ready"}

    # -- calls, with their answers in the books

    async def read(self, path: str, url: str = "") -> Any:
        async with self.http.get((url or self.dispatch[0]) + path) as response:
            return await response.json()

    async def try_create(self, live: str, url: str = "") -> tuple[int, Any]:
        body = {"live_id": live, "digital_id": "demo"}
        return self._noted(*await self.post(f"{url or self.dispatch[0]}/v1/lives?wait_s=5", body))

    async def try_reassign(self, live: str, target: str, url: str = "") -> tuple[int, Any]:
        """Move a live to the Worker of this name."""
        at, workers = await self.read(f"/v1/lives/{live}", url), await self.ready_workers(url)
        if "epoch" not in at or target not in workers:
            return 503, at
        body = {"expected_epoch": at["epoch"], "target": workers[target]}
        return self._noted(*await self.post(f"{url or self.dispatch[0]}/v1/lives/{live}/reassign", body))

    async def move(self, lives: Sequence[str], target: str, url: str = "") -> None:
        """Move lives to the Worker of this name, and wait until it has claimed them."""
        for live in lives:
            status, answer = await self.try_reassign(live, target, url)
            assert status == 200, answer
        await self.claimed(lives, url, by=target)

    def _noted(self, status: int, answer: Any) -> tuple[int, Any]:
        if status in (200, 201):
            again = bool(answer.get("again"))
            self.books.issued.append(Issued(answer["live_id"], answer["epoch"], answer["worker"], "answer", again))
        return status, answer

    async def create_lives(self, names: Sequence[str]) -> None:
        """Create lives, and wait until each has a runtime that has claimed it."""
        for live in names:
            status, answer = await self.try_create(live)
            assert status == 201, answer
        self.lives += names
        await self.claimed(names)

    async def claimed(self, names: Collection[str], url: str = "", by: str = "") -> None:
        """Wait until each of these lives is claimed: by the Worker of this name, or by any."""

        async def unclaimed() -> list[str]:
            listed = (await self.read("/v1/lives?limit=1000", url)).get("lives", [])
            there = [each for each in listed if each["claimed"] and by in ("", each["worker"].partition("#")[0])]
            return sorted({*names} - {each["live_id"] for each in there})

        await until_so(unclaimed, lambda found: not found, f"every live to be claimed {by and 'by ' + by}")

    # -- input

    def load(
        self, lives: Sequence[str] = (), urls: Sequence[str] = (), name: str = "", kinds: Sequence[type[Client]] = ()
    ) -> Load:
        """Start clients of these lives, by default of all."""
        made = Load(self.books, self.http, urls or self.infer, lives or self.lives, name, kinds or CLIENTS)
        self._stack.push_async_callback(made.stop, 0.0)
        made.start()
        return made

    async def standing_still(self, url: str = "") -> list[str]:
        """Push one item to each live, again and again if need be; return the lives whose runtime was not given theirs
        in time."""
        self._asked += 1
        urls = [url] if url else self.infer
        posters = [Poster(self.books, self.http, urls, live, f"{live} look {self._asked}") for live in self.lives]
        posting = [asyncio.create_task(poster.post()) for poster in posters]
        wanted = {(live, f"{poster.name} 1") for live, poster in zip(self.lives, posters, strict=True)}

        def missing() -> set[str]:
            return {live for live, _ in wanted - {(one.live, one.text) for one in self.books.consumed}}

        with contextlib.suppress(AssertionError):
            await until(lambda: not missing(), "an item of each live", FLOW_S)
        for task, poster in zip(posting, posters, strict=True):
            await ended(task)
            poster.give_up()
        return sorted(missing())

    # -- the end

    async def events(self, url: str = "") -> list[dict[str, Any]]:
        await asyncio.gather(*(each.events.written() for each in self.replicas))
        found: list[dict[str, Any]] = (await self.read("/v1/events?limit=1000", url)).get("events", [])
        return found

    async def _at_rest(self, url: str) -> None:
        """Wait until every accepted item was consumed, or no live has anything to consume any more, or for so long."""

        async def waiting() -> bool:
            if not self.books.never_consumed():
                return False
            listed = (await self.read("/v1/lives?limit=1000", url)).get("lives", [{"pending": 1}])
            return any(each["pending"] for each in listed)

        with contextlib.suppress(AssertionError):
            await until_so(waiting, lambda found: not found, "nothing to consume", CONSUMED_S)

    async def judged(
        self, *, lost_at: float, healed_at: float, restarts_max: int = 1, quiet: Collection[str] = (), url: str = ""
    ) -> tuple[list[str], Figures]:
        """Wait for what is still on its way; return the promises that are broken, and the figures."""
        await self._at_rest(url)
        events = await self.events(url)
        books = self.books
        books.losses_said = sum(map(says_loss, events))
        figures = Figures(
            gap_s=books.gap_s(lost_at),
            items=len(books.accepted()),
            unknown=sum(push.fate == "unknown" for push in books.pushes),
            lost=len(books.never_consumed()),
            resent=sum(push.again for push in books.pushes),
            repaired=sum(event["kind"] == "live_repaired" for event in events),
            restarted=len(books.restarts(lost_at)),
            lives=len({one.live for one in books.opened}),
        )
        broken = judge(books, lost_at=lost_at, healed_at=healed_at, quiet=quiet, restarts_max=restarts_max)
        return broken, figures


def says_loss(event: Mapping[str, Any]) -> bool:
    """Whether a fleet event tells that the store has lost something that was told."""
    return bool(event["kind"] == "store_lost" and event["numbers"]["calls"] > 0)


def note_numbers(store: RedisStore, books: Books) -> None:
    """Write every number that this store object is answered into the books."""
    step = store.step

    def noting(name: str, /, **arguments: Any) -> asyncio.Future[Any]:
        given = {key: arguments.get(key) for key in ("live", "epoch", "boot")}
        answered = step(name, **arguments)
        answered.add_done_callback(partial(note_answer, books, given))
        return answered

    store.step = noting  # type: ignore[method-assign]


def note_answer(books: Books, given: Mapping[str, Any], answered: asyncio.Future[Any]) -> None:
    if answered.cancelled() or answered.exception() is not None:
        return
    live = plain(given["live"] or "")
    match answered.result():
        case o.Committed(generation=made, again=again):
            books.issued.append(Issued(live, made.epoch, made.worker, "commit", again))
        case o.Reserved(target=target, number=number, again=again):
            books.issued.append(Issued(live, number, target, "reserve", again))
        case o.Pulling(pull_no=pull_no):
            books.granted.append(Granted(live, given["epoch"], pull_no))
        case o.Registered(worker=worker):
            books.registered.append(Registered(worker, given["boot"]))


# -- a deployment on one primary with replicas


class Replicated(FailoverFleet):
    """On a primary with replicas; `fronts` are the store's addresses, of which a service takes one."""

    group: Group
    fronts: list[Front]

    def begin_to_lose(self, how: How) -> Tail:
        return Tail(self, how)

    def point_fronts(self, member: Member) -> None:
        for front in self.fronts:
            front.lead_to(member)


class Tail:
    """The end of the store's history, from `begin` on, which `lose` takes away. `lost_at` and `healed_at` are the times
    for the judge."""

    def __init__(self, fleet: Replicated, how: How) -> None:
        self.lost_at = self.healed_at = 0.0
        self._group = fleet.group
        self._fleet = fleet
        self._how = how
        self._past = Path()

    async def begin(self) -> None:
        if self._how == "power cut":
            self._past = self._group.primary.remember()
        else:
            await self._group.in_sync()
            self._group.cut()

    async def lose(self) -> None:
        """Let the store lose the tail; fronts lead to the primary that there is then."""
        self.lost_at = time.monotonic()
        if self._how == "power cut":
            await self._group.primary.forget(self._past)
        elif self._how == "promotion":
            await self._group.primary.kill()
            await self._group.promote(self._group.replicas[0])
        else:
            await self._group.demote_for_a_moment(self._group.replicas[0])
        if self._how != "demotion":
            self._fleet.point_fronts(self._group.primary)
        self.healed_at = time.monotonic()


@asynccontextmanager
async def on_replicas(
    kind: str, folder: Path, *, replicas: int = 1, fronts: int = 1, settle: int = 0
) -> AsyncIterator[Replicated]:
    """A primary with replicas and addresses before it, without any service yet."""
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(replicated(kind, folder, replicas))
        made = [Front(f"front-{n}", group.primary.port) for n in range(fronts)]
        for front in made:
            await front.start()
            stack.push_async_callback(front.stop)
        f = Replicated(group.primary.server, folder, stack, made[0].url, settle)
        f.group, f.fronts = group, made
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        yield f


# -- a deployment on a cluster


class Clustered(FailoverFleet):
    """On a cluster of three primaries with a replica each."""

    six: Six


@asynccontextmanager
async def on_cluster(kind: str, folder: Path) -> AsyncIterator[Clustered]:
    """Six nodes, without any service yet; services know a node that owns another slot."""
    async with AsyncExitStack() as stack:
        six = await stack.enter_async_context(six_nodes(kind))
        seed = six.servers[(await six.other_primary()).port]
        f = Clustered(seed, folder, stack, seed.tcp_address.url())
        f.six = six
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        yield f
