"""What the applications of a small run do to get past limits, one after another, again and again.

A probe is an application or an operator at its worst: it sends too much, waits too long, or takes away what others
need. What it gets past is marked (`passed.py`); the judges hold what follows to the same rules as everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

from dhsched.errors import DhschedError, Refused
from dhsched.infer.settings import InferSettings
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.settings import DispatchSettings
from tests.chaos.load import Told
from tests.chaos.runtime import POISON
from tests.virtual.deployment import DIGITAL_ID, DISPATCH_PORT, INFER_PORT, Deployment
from tests.virtual.load import PROBED, Load
from tests.virtual.passed import Passed
from tests.virtual.swarm import default_of
from tests.virtual.worst import LONG, MUCH, SLOW_S, STUBBORN, STUBBORN_S

EVERY_S = 600.0  # Between two probes, so that what a probe leaves behind is over before the next one.
AGAIN_S = 3_600.0  # The same, once each has had its turn: there is time in which nothing happens.
CROWD = 150  # Lives at once: more than one Worker may start, and more than one return makes due.
TROUBLED = 24  # Lives that stall or crash at once.
GONE_S = 1_000.0
UNBROKEN = 800  # Items, which take two minutes.
EMPTY_POOL, NOWHERE = "empty", "nowhere"
PAUSE_S = 9.0  # Of the store: longer than every deadline of a request.
AT_ONCE = 700  # Requests: more than a service handles at once, also when the caller's connections wait.


class Probes:
    """See the module. Each probe is a method that ends by itself."""

    def __init__(
        self, deployment: Deployment, load: Load, passed: Passed, seed: int, on_term: Callable[[], None]
    ) -> None:
        self._d, self._load, self._passed, self._on_term = deployment, load, passed, on_term
        self._rng = Random(f"probes {seed}")
        self._lives = 0

    async def run(self) -> None:
        """Go on until the applications close."""
        load, probes = self._load, self._all()
        await load._until_known(lambda: load._client.put_pool(EMPTY_POOL, {}))
        await load._until_known(
            lambda: load._client.put_digital_id(NOWHERE, {"pools": [{"pool": EMPTY_POOL, "tier": 0}]})
        )
        every_s = EVERY_S
        while not load.closing:
            self._rng.shuffle(probes)
            for probe in probes:
                await load._pause(self._rng.uniform(0.5, 1.5) * every_s)
                if load.closing:
                    return
                self._d.note(f"probe {probe.__name__}")
                with contextlib.suppress(DhschedError, OSError, asyncio.IncompleteReadError):
                    await probe()
            every_s = AGAIN_S

    def _all(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            *(self.long_text, self.much, self.pending, self.requests, self.poison, self.reassigns, self.producers),
            *(
                self.slow_start,
                self.slow_move,
                self.unbroken,
                self.stubborn,
                self.troubles,
                self.crowd,
                self.alone,
                self.gone,
            ),
            *(self.boots, self.connections, self.paused, self.full, self.nowhere, self.new_term),
        ]

    # -- one live

    async def long_text(self) -> None:
        told = await self._new("long")
        await self._refused(
            lambda: self._load._client.push(told.live, "x" * (default_of(InferSettings, "text_bytes_max") + 1)),
            {"TOO_LARGE": "infer.text_bytes_max"},
        )
        await self._end(told)

    async def much(self) -> None:
        """A runtime writes more than is kept (`worst.py`): lines of its log too, first many and then long ones."""
        told, lines = await self._new("much"), 0
        for n in range(8):
            text = MUCH if n < 5 else LONG
            await self._push(told, f"{text} {told.live}.{n}")
            await self._pause(60.0)
            before, lines = lines, self._log_lines(told.live)
            if n == 0 and 0 < lines < default_of(InferSettings, "log_lines_max"):
                self._passed.mark("worker.log_lines_per_s")
            elif n < 5 and lines == default_of(InferSettings, "log_lines_max"):
                self._passed.mark("infer.log_lines_max")
            elif n >= 5 and lines < before:
                self._passed.mark("infer.log_bytes_max")
        await self._end(told)

    def _log_lines(self, live: str) -> int:
        store = self._d.store
        return len(store.keyspace.values.get(store.keys.of("logs", f"default/{live}").encode(), ()))

    async def pending(self) -> None:
        """Nobody consumes, and input comes until it is refused."""
        told = await self._new("pending")
        await self._push(told, f"{STUBBORN} {told.live}.0")
        for n in range(1, DEFAULT_LIMITS.pending_max + 10):
            await self._push(told, f"say {told.live}.{n}")
        await self._end(told)

    async def requests(self) -> None:
        """More requests to one live than it remembers ids of, in less time than it remembers them for."""
        told = await self._new("requests")
        for n in range(DEFAULT_LIMITS.recent_max + 50):
            await self._push(told, f"say {told.live}.{n}")
            if told.ended:
                return
            if n % 8 == 7:
                await asyncio.sleep(0.8)  # As fast as a runtime consumes, or less.
        await self._end(told)

    async def poison(self) -> None:
        """More items that kill than a live keeps. An item between two that is acked makes the next recovery quick."""
        told = await self._new("poison")
        for n in range(DEFAULT_LIMITS.dead_max + 4):
            await self._push(told, f"{POISON} {told.live}.{n}")
            await self._push(told, f"say {told.live}.{n}")
            await self._pause(45.0)
        await self._end(told)

    async def reassigns(self) -> None:
        """More generations than a live remembers."""
        told = await self._new("reassigns")
        for _ in range(2 * DEFAULT_LIMITS.history_max):
            with contextlib.suppress(DhschedError):
                await self._load._client.reassign(told.live)
            await self._pause(3.0)
        await self._end(told)

    async def producers(self) -> None:
        """More streams to one live than it remembers."""
        told = await self._new("producers")
        async with contextlib.AsyncExitStack() as streams:
            for n in range(DEFAULT_LIMITS.producers_max + 2):
                stream = await streams.enter_async_context(self._load._client.stream(told.live))
                self._load.pushes += 1
                told.unknown.add(text := f"say {told.live}.{n}")
                await stream.push(text)
        await self._end(told)

    async def troubles(self) -> None:
        """More lives stall and crash on each Worker than on one that is well."""
        for text in (STUBBORN, POISON):
            some = await asyncio.gather(*(self._new("trouble") for _ in range(TROUBLED)))
            await asyncio.gather(*(self._push(told, f"{text} {told.live}.0") for told in some))
            await self._pause(240.0)
            await asyncio.gather(*map(self._end, some))

    async def slow_move(self) -> None:
        """The next Worker of a live takes longer to prepare than a move may take, and nobody carries the move on."""
        told = await self._new("slowmove")
        await self._push(told, f"say {told.live}.0")
        await self._pause(30.0)
        expires_s = DEFAULT_LIMITS.move_expires_ms / 1000
        draining = asyncio.create_task(self._drained(told, 2 * expires_s))
        await self._pause(10.0)
        for process in self._d.replicas:
            process.kill(expires_s)
        await draining
        await self._end(told)

    async def unbroken(self) -> None:
        """A live is drained that has no boundary for longer than a drain waits for one."""
        told = await self._new("unbroken")
        for n in range(UNBROKEN):
            await self._push(told, f"say {told.live}.{n}")
        await self._drained(told, 120.0)
        await self._end(told)

    async def slow_start(self) -> None:
        told = await self._new("slow")
        await self._push(told, f"say {told.live}.0")
        await self._pause(2 * SLOW_S)
        await self._end(told)

    async def stubborn(self) -> None:
        told = await self._new("stubborn")
        await self._push(told, f"{STUBBORN} {told.live}.0")
        await self._pause(STUBBORN_S + 60.0)
        await self._end(told)

    # -- many lives, and Workers

    async def crowd(self) -> None:
        """Many lives start at once, lose their Worker, get it back, and are drained."""
        # Half of them makes the Workers slow; then the other half has to wait for its turn.
        crowd = await asyncio.gather(*(self._new("crowd") for _ in range(CROWD // 2)))
        await self._pause(5.0)
        crowd += await asyncio.gather(*(self._new("crowd") for _ in range(CROWD // 2)))
        await asyncio.gather(*(self._push(told, f"say {told.live}.0") for told in crowd))
        for process in self._d.workers:
            process.kill(10.0)
        await self._pause(120.0)
        await asyncio.gather(*(self._push(told, f"say {told.live}.1") for told in crowd))
        await self._drained(crowd[0], 150.0)
        await asyncio.gather(*map(self._end, crowd))

    async def alone(self) -> None:
        """Every Worker is asked to stop: the lives have nowhere to go until it gives up."""
        told, process = await self._new("alone"), self._d.workers[0]
        began, node, drain_s = self._d.loop.now, process.node, self._d.swarm.drain_s
        for each in self._d.workers:
            each.leaving.requested.set()
        while process.node is node and self._d.loop.now < began + drain_s + 60.0 and not self._load.closing:
            await self._pause(5.0)
        if node is not process.node and self._d.loop.now >= began + drain_s:
            self._passed.mark("worker.drain_s")
        await self._end(told)

    async def gone(self) -> None:
        """There is no Worker for so long that recoveries become as rare as they may be."""
        told = await self._new("gone")
        await self._push(told, f"say {told.live}.0")
        for process in self._d.workers:
            process.kill(GONE_S)
        await self._pause(GONE_S + 60.0)
        await self._end(told)

    async def boots(self) -> None:
        """One name boots more often than a machine that is well."""
        for _ in range(DEFAULT_LIMITS.boots_max + 2):
            self._d.workers[0].kill(1.0)
            await asyncio.sleep(20.0)

    # -- connections and the store

    async def connections(self) -> None:
        """Connections that say nothing, half of a request, or nothing after it."""
        for role, host, port in self._services():
            head = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n".encode()
            path = "lives" if role == "dispatch" else "lives/P-none/text"
            post = f"POST /v1/{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n".encode()
            for sent, name in (
                (b"", "head_s"),
                (post + b"Content-Length: 9\r\n\r\n{", "body_s"),
                (head + b"\r\n", "idle_s"),
            ):
                if await self._outlasts(host, port, sent, default_of(DispatchSettings, name)):
                    self._passed.mark(f"{role}.{name}")

    async def _outlasts(self, host: str, port: int, sent: bytes, limit_s: float) -> bool:
        """Return whether a connection is closed by the service, not earlier than its limit."""
        began = self._d.loop.now
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        try:
            await asyncio.wait_for(reader.read(), 2 * limit_s + 10.0)
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass  # Which is how a service closes it.
        finally:
            writer.close()
        return self._d.loop.now - began >= limit_s

    async def paused(self) -> None:
        """The store stands still while more is asked than is handled at once."""
        store = self._d.store.node
        if store.frozen:
            return
        store.freeze()
        asking = [asyncio.create_task(self._ready())]
        for role, host, port in self._services():
            asking += [asyncio.create_task(self._ask(role, host, port)) for _ in range(AT_ONCE)]
        await asyncio.sleep(PAUSE_S)
        if store.frozen:
            store.thaw()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, role: str, host: str, port: int) -> None:
        """Ask for a live that there is not."""
        began = self._d.loop.now
        line, body = (
            ("GET /v1/lives/P-none", b"") if role == "dispatch" else ("POST /v1/lives/P-none/text", b'{"text":"x"}')
        )
        reader, writer = await asyncio.open_connection(host, port)
        head = f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = await asyncio.wait_for(reader.read(), 30.0)
        writer.close()
        if b'"BUSY"' in answer:
            self._passed.mark(f"{role}.in_flight_max")
        elif b" 503 " in answer and self._d.loop.now - began >= default_of(DispatchSettings, "deadline_s"):
            self._passed.mark(f"{role}.deadline_s")

    async def _ready(self) -> None:
        _, host, port = self._services()[0]
        await asyncio.sleep(PAUSE_S - 2.0)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        if b" 503 " in await asyncio.wait_for(reader.read(), 30.0):
            self._passed.mark("dispatch.fresh_s")
        writer.close()

    async def full(self) -> None:
        """The store's memory is used up to more than its share."""
        keyspace = self._d.store.keyspace
        keyspace.full = True
        await asyncio.sleep(10.0)
        client = self._load._client
        for role, call in (
            ("dispatch", partial(client.create, DIGITAL_ID, live_id="P-refused")),
            ("infer", partial(client.push, "P-none", "say nothing")),
        ):
            await self._refused(partial(asyncio.wait_for, call(), 8.0), {"STORE_FULL": f"{role}.memory_max"})
        keyspace.full = False

    async def nowhere(self) -> None:
        """A create waits for a Pool without Workers."""
        began = self._d.loop.now
        most_s = default_of(DispatchSettings, "wait_max_s")
        with contextlib.suppress(DhschedError):
            await self._load._client.create(NOWHERE, live_id=f"P-nowhere-{int(began)}", wait_s=2 * most_s)
        if self._d.loop.now - began >= most_s:
            self._passed.mark("dispatch.wait_max_s")

    async def new_term(self) -> None:
        calls: Any = self._load._client._dispatch
        term = json.loads(await calls.call("GET", "store"))["term"]
        self._on_term()
        await calls.call("POST", "store", "new-term", body={"term": term, "reason": "probe"}, twice=False)

    # -- within

    async def _drained(self, told: Told, seconds: float) -> None:
        """Drain the Worker of a live for so long."""
        client = self._load._client
        worker = (await client.get(told.live)).worker
        await client.drain(worker)
        await self._pause(seconds)
        with contextlib.suppress(DhschedError):  # It may have ended by now.
            await client.undrain(worker)

    async def _pause(self, seconds: float) -> None:
        await self._load._pause(seconds)

    async def _new(self, name: str) -> Told:
        self._lives += 1
        live, load = f"{PROBED}{name}-{self._lives}", self._load
        told = Told(live)
        made = await load._until_known(lambda: load._client.create(DIGITAL_ID, live_id=live, wait_s=5), give_up=True)
        if made is None:
            raise ConnectionAbortedError("the run is over")
        told.created = True
        load.told[live] = told
        return told

    async def _push(self, told: Told, text: str) -> None:
        if not told.ended and not self._load.closing:
            self._load.pushes += 1
            await self._load.push_one(told, {"text": text})

    async def _end(self, told: Told) -> None:
        if not told.ended:
            await self._load._until_known(lambda: self._load._client.end(told.live))
            told.ended = True

    async def _refused(self, call: Callable[[], Awaitable[Any]], names: dict[str, str]) -> None:
        try:
            await call()
        except Refused as error:
            self._passed.mark(*(name for code, name in names.items() if code == error.code))
        except (DhschedError, TimeoutError):
            pass

    def _services(self) -> list[tuple[str, str, int]]:
        return [
            ("dispatch", self._d.replicas[0].host, DISPATCH_PORT),
            ("infer", self._d.controllers[0].host, INFER_PORT),
        ]
