"""Dispatch replicas as a Worker's link meets them: what a replica says and when is up to the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import aiohttp
import pytest
from yarl import URL

from dhsched.links import messages as m
from dhsched.types import SlotState
from dhsched.worker import dispatch_link
from dhsched.worker.dispatch_link import Boot, DispatchLink
from tests.harness.linking import eventually

M = TypeVar("M")
REGISTER = m.Register("w", "boot-1", "gpu", 4)
REGISTERED = m.Registered("w#1", "token-1", "ready", ["http://c1"])


class Replica:
    """A connection to a replica, which sends what the test tells it to. `said` has what the Worker has sent."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self.headers = headers
        self.said: list[m.FromWorker] = []
        self.closed = False
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send_bytes(self, data: bytes) -> None:
        self.said += m.read_from_worker(data)

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        while (frame := await self.frames.get()) is not None:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, frame, None)

    async def close(self) -> None:
        self.closed = True
        self.frames.put_nowait(None)

    def tell(self, *said: Any) -> None:
        self.frames.put_nowait(m.encode([*said]))

    def all(self, kind: type[M]) -> list[M]:
        return [each for each in self.said if isinstance(each, kind)]

    async def nth(self, kind: type[M], n: int = 1) -> M:
        await eventually(lambda: len(self.all(kind)) >= n)
        return self.all(kind)[n - 1]


class Agent:
    """Counts its reports, so that each can be told from the others."""

    def __init__(self) -> None:
        self.reports = self.acts = 0
        self.tables: list[dict[str, Any]] = []

    def report(self) -> m.Report:
        self.reports += 1
        return m.Report(1, self.reports)

    def take_table(self, *, home: str, term: int, rev: int, table: Mapping[str, SlotState | None], base: int) -> None:
        self.tables.append({"home": home, "term": term, "rev": rev, "table": {**table}, "base": base})

    def act_soon(self) -> None:
        self.acts += 1


class Link:
    """A link and everything around it. `refuses` are the errors that the next connections end with."""

    def __init__(self, *urls: str, key: str = "", devices: list[m.Device] | None = None) -> None:
        self.made: list[Replica] = []
        self.refuses: list[Exception] = []
        self.registered: list[tuple[str, str]] = []
        self.controllers: list[list[str]] = []
        self.agent = Agent()
        self.boot = Boot(REGISTER, cell="")
        self.link = DispatchLink(
            cast(Any, None),
            urls or ("http://d1", "http://d2"),
            self.boot,
            self.agent,
            on_registered=lambda worker, token: self.registered.append((worker, token)),
            on_controllers=lambda urls: self.controllers.append([*urls]),
            key=key,
            devices=None if devices is None else lambda: devices,
        )
        self.running = asyncio.ensure_future(self.link.run())

    async def open_socket(self, http: object, url: str, *, headers: Mapping[str, str], **more: object) -> Replica:
        if self.refuses:
            raise self.refuses.pop(0)
        self.made.append(Replica(url, headers))
        return self.made[-1]

    async def nth(self, n: int = 1) -> Replica:
        await eventually(lambda: len(self.made) >= n)
        return self.made[n - 1]

    async def serving(self) -> Replica:
        """Return the first replica, which has registered the Worker."""
        replica = await self.nth()
        await replica.nth(m.Register)
        replica.tell(REGISTERED)
        await replica.nth(m.Report)
        return replica

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@asynccontextmanager
async def scripted_links(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Yield what makes a link; end all of them after the block."""
    made: list[Link] = []

    def make(*urls: str, **more: Any) -> Link:
        link = Link(*urls, **more)
        made.append(link)
        monkeypatch.setattr(dispatch_link, "open_socket", link.open_socket)
        return link

    monkeypatch.setattr(dispatch_link, "BACKOFF_S", 0.001)
    monkeypatch.setattr(dispatch_link, "REPORT_S", 60.0)  # Every report of a test is one that something asked for.
    yield make
    for each in made:
        await each.end()


def reported(beat: int = 1, **more: Any) -> m.Reported:
    return m.Reported(beat, 1, 1, "ready", **more)


def refused(status: int) -> aiohttp.WSServerHandshakeError:
    info = aiohttp.RequestInfo(URL("http://d1"), "GET", cast(Any, {}), URL("http://d1"))
    return aiohttp.WSServerHandshakeError(info, (), status=status, message="no")
