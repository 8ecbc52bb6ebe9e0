"""Clients that push through everything that happens to the store, and runtimes that write down what they are given.

Each live has a producer, which numbers its items on a WebSocket and keeps all of them, so that it can send again what
a GAP says the store has lost; and a poster, which sends one item per request, with an id, until the answer is final. So
each push ends as accepted, refused or unknown, and the books say which.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from dhsched.worker.session import Session
from tests.harness.failover_judge import Books, Consumed, Fate, Opened, Push
from tests.harness.fleet import PATIENCE_S, ended, until

EVERY_S = 0.03  # Between two items of one client.
UNANSWERED_MAX = 16  # A producer with this many items on their way makes no more.
AGAIN_S = 0.05  # Between two tries.
TRY_S = 8.0  # Longer than a controller takes to give up.
FINAL = frozenset({"NOT_FOUND", "ENDED", "CLOSING"})
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


def plain(live: str) -> str:
    return live.partition("/")[2]


class Runtime:
    """Writes into the books what it is given. While `may_consume` is cleared, every runtime waits before its next item,
    which is then neither consumed nor acked."""

    def __init__(self, books: Books) -> None:
        self.may_consume = asyncio.Event()
        self.may_consume.set()
        self._books = books

    async def __call__(self, session: Session) -> None:
        live, generation = plain(session.live), session.generation
        where = live, generation.worker, generation.epoch
        self._books.opened.append(Opened(*where, time.monotonic()))
        async for item in session.inputs():
            if not self.may_consume.is_set() and not await self._released(session):
                return
            self._books.consumed.append(Consumed(*where, item.text, time.monotonic()))

    async def _released(self, session: Session) -> bool:
        """Wait; return whether the runtime may go on, and not whether it must stop."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (self.may_consume, session.stopping)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        return not session.stopping.is_set()


class Client:
    """What both kinds of clients share: their place in the books, and the controllers that they may ask."""

    def __init__(self, books: Books, http: aiohttp.ClientSession, urls: Sequence[str], live: str, name: str) -> None:
        self.live = live
        self.name = name
        self.closing = False
        self.pushes: list[Push] = []
        self._books = books
        self._http = http
        self._urls = urls
        self._at = 0

    @property
    def accepted(self) -> int:
        return sum(push.fate == "accepted" for push in self.pushes)

    def _url(self) -> str:
        return self._urls[self._at % len(self._urls)]

    def _next(self, producer: str = "") -> Push:
        push = Push(self.live, f"{self.name} {len(self.pushes) + 1}", producer)
        self.pushes.append(push)
        self._books.pushes.append(push)
        return push

    def give_up(self) -> None:
        """End what has no end yet as unknown."""
        for push in self.pushes:
            if not push.fate:
                end(push, "unknown")

    async def run(self) -> None:
        raise NotImplementedError


class Poster(Client):
    """One item after the other, each in a request of its own, repeated as it is until the answer is final."""

    async def run(self) -> None:
        while not self.closing:
            await self.post()
            await asyncio.sleep(EVERY_S)

    async def post(self) -> None:
        """Push one item until the answer is final."""
        push = self._next()
        body = {"text": push.text, "request_id": push.text.replace(" ", "-")}
        while not push.fate:
            with contextlib.suppress(*NO_ANSWER):
                url, timeout = f"{self._url()}/v1/lives/{self.live}/text", aiohttp.ClientTimeout(total=TRY_S)
                async with self._http.post(url, json=body, timeout=timeout) as response:
                    answer = await response.json(content_type=None)
                    if response.status == 200:
                        end(push, "accepted")
                    elif answer.get("code") in FINAL:
                        end(push, "refused", answer["code"])
            if not push.fate:
                self._at += 1
                await asyncio.sleep(AGAIN_S)


class Producer(Client):
    """Numbered items on a WebSocket: items without an answer go again on the next connection, and so do those that the
    store has lost, as soon as a GAP tells so."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._answered = 0  # The store has everything up to this number, as far as it says.
        self._refused = False

    async def run(self) -> None:
        making: asyncio.Task[None] | None = None
        while not self._refused and not (self.closing and self._answered == len(self.pushes)):
            with contextlib.suppress(*NO_ANSWER):
                url = f"{self._url()}/v1/lives/{self.live}/stream"
                async with self._http.ws_connect(url, params={"producer": self.name}, heartbeat=5.0) as socket:
                    for n in range(self._answered + 1, len(self.pushes) + 1):
                        await self._send(socket, n)
                    making = asyncio.create_task(self._make(socket))
                    await self._hear(socket)
            if making is not None:
                await ended(making)
            self._at += 1
            await asyncio.sleep(AGAIN_S)

    async def _make(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Make and send new items for as long as this connection lasts."""
        with contextlib.suppress(*NO_ANSWER):
            while not self.closing:
                if len(self.pushes) - self._answered < UNANSWERED_MAX:
                    self._next(self.name)
                    await self._send(socket, len(self.pushes))
                await asyncio.sleep(EVERY_S)
            while self._answered < len(self.pushes):  # noqa: ASYNC110
                await asyncio.sleep(EVERY_S)
            await socket.close()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, n: int) -> None:
        await socket.send_str(msgspec.json.encode({"n": n, "text": self.pushes[n - 1].text}).decode())

    async def _hear(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Take answers until the connection ends, or one says that it must be made anew."""
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                return
            for answer in msgspec.json.decode(message.data):
                if not self._take(answer["n"], answer.get("problem")):
                    return

    def _take(self, n: int, problem: dict[str, Any] | None) -> bool:
        if problem is None:
            for push in self.pushes[self._answered : n]:
                end(push, "accepted")
            self._answered = max(self._answered, n)
        elif problem["code"] == "GAP":
            for push in self.pushes[problem["last"] : self._answered]:
                push.again += 1
            self._answered = problem["last"]
        elif problem["code"] in FINAL:
            self._refused = True
            for push in self.pushes[self._answered :]:
                end(push, "refused", problem["code"])
        return problem is None


def end(push: Push, fate: Fate, code: str = "") -> None:
    push.fate, push.code, push.at = fate, code, time.monotonic()


CLIENTS: tuple[type[Client], ...] = (Producer, Poster)


class Load:
    """A client of each kind for each live, from `start` to `stop`; `name` tells loads of one test apart."""

    def __init__(
        self,
        books: Books,
        http: aiohttp.ClientSession,
        urls: Sequence[str],
        lives: Sequence[str],
        name: str,
        kinds: Sequence[type[Client]],
    ) -> None:
        turned = [[*urls[n % len(urls) :], *urls[: n % len(urls)]] for n in range(len(lives))]
        self.clients: list[Client] = [
            kind(books, http, order, live, f"{live}{name}-{kind.__name__.lower()}")
            for live, order in zip(lives, turned, strict=True)
            for kind in kinds
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(client.run()) for client in self.clients]

    async def more(self, count: int, wait_s: float = PATIENCE_S) -> None:
        """Wait until each client has had so many more items accepted."""
        goals = [client.accepted + count for client in self.clients]

        def behind() -> list[str]:
            return [each.name for each, goal in zip(self.clients, goals, strict=True) if each.accepted < goal]

        await until(lambda: not behind(), f"{count} more items of each client", wait_s)

    async def stop(self, wait_s: float = 20.0) -> None:
        """Make nothing new, wait for the answers, and end as unknown what has none by then."""
        for client in self.clients:
            client.closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=wait_s)
        for task in self._tasks:
            await ended(task)
        for client in self.clients:
            client.give_up()
