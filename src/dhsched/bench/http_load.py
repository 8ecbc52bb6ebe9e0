"""A load generator that costs little beside what it measures: plain HTTP/1.1 over kept connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from dhsched.bench.harness import percentile
from dhsched.errors import DhschedError


@dataclass(frozen=True, slots=True)
class Load:
    """What a run of requests took, in the order in which they ended."""

    seconds: list[float]
    wall_s: float

    @property
    def per_s(self) -> float:
        return len(self.seconds) / self.wall_s

    def percentile_ms(self, share: float) -> float:
        return percentile([each * 1000 for each in self.seconds], share)


async def post_all(host: str, port: int, path: str, bodies: list[bytes], *, connections: int, expect: int) -> Load:
    """POST every body once over so many connections, each with one request in flight."""
    queue = iter(bodies)
    seconds: list[float] = []
    clients = [await asyncio.open_connection(host, port) for _ in range(connections)]
    began = time.perf_counter()
    try:
        await asyncio.gather(*(_client(*client, host, path, queue, seconds, expect) for client in clients))
    finally:
        for _, writer in clients:
            writer.close()
    return Load(seconds, time.perf_counter() - began)


async def _client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    path: str,
    queue: Iterator[bytes],
    seconds: list[float],
    expect: int,
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    for body in queue:
        began = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        status, answer = await read_response(reader)
        seconds.append(time.perf_counter() - began)
        if status != expect:
            raise DhschedError(
                f"the benchmark's request was answered {status}: {answer[:300]!r}; this is a bug, report it"
            )


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    at = lowered.index(b"content-length:") + 15
    size = int(lowered[at : lowered.index(b"\r\n", at)])
    return int(head[9:12]), await reader.readexactly(size)
