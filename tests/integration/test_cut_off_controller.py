"""An Infer-Controller that is cut off from the store, while Dispatch and the other controller are not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from dhsched.dispatch.app import Replica, open_context
from dhsched.links import messages
from dhsched.local.ports import free_port
from dhsched.room.app import open_room
from dhsched.room.settings import RoomSettings
from dhsched.settings import DispatchSettings
from dhsched.store.link.address import parse_address
from dhsched.types import Generation
from dhsched.worker import pull_client
from dhsched.worker.inbox import SessionInbox
from dhsched.worker.pull_client import PullClient
from dhsched.worker.session import Session
from tests.harness.fleet import Fleet, Record, until
from tests.harness.proxy import Proxy
from tests.harness.servers import running_server

LIVES = [f"l{i}" for i in range(12)]  # So many that a hash gives both controllers some, whatever their ports are.


@asynccontextmanager
async def one_of_two_through(folder: Path) -> AsyncIterator[tuple[Fleet, Proxy]]:
    """Two controllers; the second one reaches the store through the proxy."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server("valkey", port=free_port()))
        proxy = Proxy("to-store", server.port)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        made = Fleet(server, folder, stack)
        made.http = await stack.enter_async_context(aiohttp.ClientSession())
        await made.start_dispatch()
        await made.start_infer()
        await made.start_infer(store=f"redis://127.0.0.1:{proxy.port}")
        await made.configure()
        yield made, proxy


def cut_off(proxy: Proxy) -> None:
    proxy.refusing = True
    proxy.cut(lambda: True)


async def test_lives_go_on_through_the_other_controller(tmp_path: Path) -> None:
    record = Record()
    async with one_of_two_through(tmp_path) as (f, proxy):
        await f.start_worker(record, "w1", capacity=32)
        for live in LIVES:
            await f.create(live)
            await f.push(live, "before")
        await until(lambda: len(record.consumed) == len(LIVES), "the first items")
        held = [len(infer.context.pulls) for infer in f.controllers]
        assert sum(held) == len(LIVES) and all(held), f"pulls are spread: {held}"
        cut_off(proxy)
        for live in LIVES:
            assert (await f.push(live, "after"))[0] == 200
        await until(lambda: len(record.consumed) == 2 * len(LIVES), "the items after", 30)
        new = [f"n{i}" for i in range(12)]
        for live in new:
            await f.create(live)
            assert (await f.push(live, "new"))[0] == 200
        await until(lambda: len(record.consumed) == 2 * len(LIVES) + len(new), "input of new lives", 30)
        assert len(record.opened) == len(LIVES) + len(new), "no runtime was started again"
        for live in LIVES:
            assert record.texts(live) == ["before", "after"]


@pytest.mark.release
async def test_a_room_asks_the_next_when_one_is_cut_off_from_the_store(tmp_path: Path) -> None:
    """Of Dispatch and of the Infer-Controllers; and what a viewer typed is stored once."""
    record = Record()
    async with one_of_two_through(tmp_path) as (f, proxy), contextlib.AsyncExitStack() as stack:
        through = parse_address(f"redis://127.0.0.1:{proxy.port}")
        context = await stack.enter_async_context(
            open_context(through, DispatchSettings(port=0, deadline_s=1, access="open"))
        )
        cut_offs: list[str] = []
        await f.serve(Replica(context).app(), cut_offs)
        settings = RoomSettings(
            port=0,
            dispatch=f"{cut_offs[0]},{f.dispatch[0]}",
            infer=f"{f.infer[1]},{f.infer[0]}",
            deadline_s=30,
            access="open",
        )
        room, urls = await stack.enter_async_context(open_room(settings)), list[str]()
        await f.serve(room.app, urls)
        await f.start_worker(record, "w1")
        await f.create("L")
        cut_off(proxy)
        state = await f.http.get(f"{urls[0]}/v1/lives/L/state")
        assert (await state.json())["owner"]["state"] == "open"
        status, said = await f.post(f"{urls[0]}/v1/lives/L/text", {"text": "hello"})
        assert status == 200, said
        await until(lambda: record.texts("L") == ["hello"], "what was typed", 30)


class Line:
    """A controller's socket, of which the test is the other end."""

    def __init__(self) -> None:
        self.said: list[messages.PullSays] = []
        self._incoming: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def send_bytes(self, data: bytes, /) -> None:
        self.said.extend(messages.read_pull_says(data))

    def tell(self, *messages: messages.InferSays) -> None:
        data = msgspec.msgpack.encode(list(messages))
        self._incoming.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None))

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        while True:
            yield await self._incoming.get()

    @property
    def opens(self) -> int:
        return sum(isinstance(each, messages.Open) for each in self.said)


UNAVAILABLE = messages.Problem("STORE_UNAVAILABLE", "no store")


@pytest.mark.parametrize("answered", [True, False])
async def test_a_controller_is_left_only_while_reports_are_answered(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """When nobody reaches the store, another controller does not either: all Workers would pull anew at once."""
    monkeypatch.setattr(pull_client, "UNAVAILABLE_S", 0.01)
    lines = {"http://a": Line(), "http://b": Line()}

    @asynccontextmanager
    async def dial(url: str) -> AsyncIterator[Line]:
        yield lines[url]

    client = PullClient(dial, lambda session: None, lambda: 10.0 if answered else 0.0)
    client.use(lines)
    for line in lines.values():
        line.tell(messages.Welcome("c"))
    await until(lambda: client.connected == 2, "two connections")
    session = Session("default/a", Generation("w#1", 1), client)
    opening = client.open(SessionInbox(session))
    await until(lambda: sum(line.opens for line in lines.values()) == 1, "the first question")
    asked = next(line for line in lines.values() if line.opens)
    other = next(line for line in lines.values() if line is not asked)
    asked.tell(UNAVAILABLE)
    await asyncio.sleep(0.02)
    asked.tell(messages.Problem("STORE_UNAVAILABLE", "no store", "default/a", 1))
    await until(lambda: sum(line.opens for line in lines.values()) == 2, "the second question")
    assert other.opens == int(answered)
    opening.cancel()
    await client.close()
