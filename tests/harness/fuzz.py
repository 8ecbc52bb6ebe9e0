"""What one request or frame costs: the roles run in a thread of their own, and bytes are sent to them over raw sockets.

CPU is the time of every thread but the sender's, and of the store's server: no wall-clock, so a busy machine changes
little of it; the least of a few repetitions is taken. A tick is one iteration of the roles' event loop, in CPU time.
Memory is the peak of Python's allocations while the input is handled, and what stays of it afterwards. The bytes on the
wire are those that were sent: answers do not count, but for LARGE_ANSWERS.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import os
import re
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from dhsched.local.ports import free_port
from tests.harness.fleet import PATIENCE_S, fleet
from tests.harness.replicas import register
from tests.harness.theatre import Theatre, stage

T = TypeVar("T")

CPU_S, CPU_S_PER_KB = 0.005, 0.005  # For one request or frame, and for each kilobyte that was sent.
CPU_S_PER_STEP = 0.0003  # For each further message of a frame of departs, each of which is a step of the store.
TICK_S = 0.020
MEMORY_TIMES = 10  # Bytes of memory for each byte that was sent,
MEMORY_BYTES = (256 + 48) * 1024  # and for a request as such: the buffer that the loop reads into, and 48 KiB.
KEPT_BYTES = 48 * 1024  # What may stay of a request as such: what replaces something else, like the key ring, counts.
LARGE_ANSWERS = frozenset({"/metrics"})
"""Paths whose answer counts as bytes on the wire: it is long, whatever was sent."""
PEAK_TIMES = {
    "dispatch create_live most keys": 25,
    "infer pull Open most messages": 40,
    "infer /v1/lives/demo/stream most items": 40,
    "infer /v1/lives/demo/stream honest, many": 100,
    "room offer most attributes": 20,
}
"""Rows whose peak may be more times what was sent: many small messages are 300 to 600 bytes in memory each, 6,000 keys
of a dictionary and 600 attributes of an offer about 150. None of it stays."""
CALM = {
    "refresh_min_s": 20,
    "refresh_max_s": 30,
    "fresh_s": 600,
}  # So that a replica does nothing by itself while it is measured.
ROOM: dict[str, Any] = {"viewer_rate_per_s": 1_000, "live_rate_per_s": 1_000}
READ_BYTES = 4_096  # The sender reads little at a time, because its memory is measured with the roles'.
END = b"\r\n\r\n"
QUIET_S = 0.004  # The roles have done their work when they use no CPU for this long.


@dataclass(frozen=True, slots=True)
class Row:
    """One input: `open` makes a connection for it, which is not measured; `send` sends it there.

    `steps` counts the messages of a frame that are each a step of the store, like requests of their own.
    """

    target: str
    shape: str
    wire: bytes
    open: Callable[[Sender], socket.socket]
    send: Callable[[socket.socket, bytes], Answered]
    steps: int = 1

    @property
    def name(self) -> str:
        return f"{self.target} {self.shape}"


class Answered(NamedTuple):
    """A status, a close code or `ok`, and the bytes that came back: they are on the wire, too."""

    what: str
    answer_bytes: int


@dataclass(slots=True)
class Cost:
    """The measured cost of a row; `answer` is a status, a close code, or what came back."""

    row: Row
    answer: Answered
    cpu_s: float
    store_s: float
    tick_s: float
    peak_bytes: int = 0
    kept_bytes: int = 0

    @property
    def wire_bytes(self) -> int:
        long = any(self.row.target.endswith(path) for path in LARGE_ANSWERS)
        return len(self.row.wire) + (self.answer.answer_bytes if long else 0)

    def over(self) -> list[str]:
        """Return the limits that the row is over, with the figures."""
        wire = self.wire_bytes
        cpu_max_s = CPU_S + CPU_S_PER_KB * wire / 1e3 + CPU_S_PER_STEP * (self.row.steps - 1)
        peak_times = PEAK_TIMES.get(self.row.name, MEMORY_TIMES)
        limits = {
            "CPU": (1e3 * (self.cpu_s + self.store_s), 1e3 * cpu_max_s, "ms"),
            "one tick": (1e3 * self.tick_s, 1e3 * TICK_S, "ms"),
            "peak memory": (self.peak_bytes / 1e3, (MEMORY_BYTES + peak_times * wire) / 1e3, "kB"),
            "kept memory": (self.kept_bytes / 1e3, (KEPT_BYTES + MEMORY_TIMES * wire) / 1e3, "kB"),
        }
        return [
            f"{self.row.name}: {what} {found:.1f} {unit} is over {most:.1f} ({wire} bytes, answer {self.answer.what})"
            for what, (found, most, unit) in limits.items()
            if found > most
        ]


def table(costs: list[Cost]) -> str:
    heads = ("answer", "sent B", "back B", "CPU ms", "store", "tick", "peak kB", "kept kB")
    lines = [f"{'target and shape':58} " + " ".join(f"{head:>8}" for head in heads)]
    for cost in costs:
        times = " ".join(f"{1e3 * each:8.2f}" for each in (cost.cpu_s, cost.store_s, cost.tick_s))
        sizes = f"{cost.answer.what[:8]:>8} {len(cost.row.wire):8} {cost.answer.answer_bytes:8}"
        lines.append(
            f"{cost.row.name[:58]:58} {sizes} {times} {cost.peak_bytes / 1e3:8.0f} {cost.kept_bytes / 1e3:8.1f}"
        )
    return "\n".join(lines)


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the CPU time of its longest tick."""

    longest_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - began)


@dataclass
class Deployment:
    """Dispatch, Infer and a room with a live `demo`, in a thread."""

    folder: Path
    loop: TimedLoop = field(init=False)
    at: Theatre = field(init=False)
    workers: list[str] = field(init=False)
    demo_worker: str = field(init=False)

    def __enter__(self) -> Deployment:
        ready = threading.Event()
        self._failed: list[BaseException] = []

        async def serve() -> None:
            async with AsyncExitStack() as stack:
                port = free_port()
                room = f"http://127.0.0.1:{port}"
                made = await stack.enter_async_context(fleet(self.folder, replica=CALM, room=room))
                self.at = await stack.enter_async_context(stage(made, port, **ROOM))
                self.loop = asyncio.get_running_loop()  # type: ignore[assignment]
                self.workers = await register(made.replicas[0].store, 4, capacity=50)
                await made.replicas[0].fleet.refresh()
                self.demo_worker = (await made.create("demo"))["worker"]
                await made.create("spare")
                self._leave = asyncio.Event()
                ready.set()
                await self._leave.wait()

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=TimedLoop) as runner:
                    runner.run(serve())
            except BaseException as error:
                self._failed.append(error)
            finally:
                ready.set()

        self._thread = threading.Thread(target=run, name="roles")
        self._thread.start()
        ready.wait(PATIENCE_S)
        if self._failed:
            raise self._failed[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(PATIENCE_S)

    def call(self, doing: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs in the roles' loop."""
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(PATIENCE_S)

    # -- clocks

    def cpu_s(self) -> float:
        """Return the CPU time of every thread but the caller's."""
        return time.process_time() - time.thread_time()

    def store_s(self) -> float:
        """Return the CPU time of the store's main thread."""

        async def read() -> float:
            raw = await self.at.fleet.replicas[0].records.link.call("INFO", "cpu")
            found = dict(line.split(":") for line in raw.decode().split() if ":" in line)
            return float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"])

        return self.call(read())

    def settle(self) -> None:
        """Wait until the roles have done what they were sent: no call to the store is open, and no CPU is used."""
        made = self.at.fleet
        links = [made.replicas[0].store.link, made.controllers[0].context.store.link]
        before = self.cpu_s()
        while True:
            time.sleep(QUIET_S)
            now = self.cpu_s()
            if now - before < QUIET_S / 20 and not any(link.in_flight for link in links):
                return
            before = now

    def measure(self, row: Row, *, times: int = 3) -> Cost:
        """Return the least cost of a row over a few repetitions."""
        costs = [self._once(row) for _ in range(times)]
        least = min(costs, key=lambda cost: cost.cpu_s + cost.store_s)
        least.tick_s = min(cost.tick_s for cost in costs)
        found = [self._memory_bytes(row) for _ in range(2)]
        least.peak_bytes, least.kept_bytes = (min(each) for each in zip(*found, strict=True))
        return least

    def _memory_bytes(self, row: Row) -> tuple[int, int]:
        """Return the peak of the memory that a row needs, and what stays of it once its connection is closed."""
        with tracing():
            empty = tracemalloc.get_traced_memory()[0]
            with sender(self) as sending:
                connection = row.open(sending)
                self.settle()
                before = tracemalloc.get_traced_memory()[0]
                tracemalloc.reset_peak()
                row.send(connection, row.wire)
                self.settle()
                peak = tracemalloc.get_traced_memory()[1] - before
            self.settle()
            kept = tracemalloc.get_traced_memory()[0] - empty
            if kept > KEPT_BYTES:
                gc.collect()  # It takes long, and most rows do without.
                kept = tracemalloc.get_traced_memory()[0] - empty
            return peak, kept

    def _once(self, row: Row) -> Cost:
        with sender(self) as sending:
            connection = row.open(sending)
            self.settle()
            store_s, cpu_s = self.store_s(), self.cpu_s()
            self.loop.longest_s = 0.0
            answer = row.send(connection, row.wire)
            self.settle()
            cpu_s, tick_s = self.cpu_s() - cpu_s, self.loop.longest_s
            return Cost(row, answer, cpu_s, self.store_s() - store_s, tick_s)


@contextmanager
def tracing() -> Iterator[None]:
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


@contextmanager
def sender(deployment: Deployment) -> Iterator[Sender]:
    sending = Sender(deployment)
    try:
        yield sending
    finally:
        sending.close()


class Sender:
    """Raw connections to the roles."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        made = deployment.at
        self._urls = {"dispatch": made.fleet.dispatch[0], "infer": made.fleet.infer[0], "room": made.url}
        self._sockets: list[socket.socket] = []

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def connect(self, role: str) -> socket.socket:
        at = urlsplit(self._urls[role])
        made = socket.create_connection((at.hostname or "", at.port or 0), timeout=PATIENCE_S)
        self._sockets.append(made)
        return made

    def upgrade(self, role: str, path: str, token: str = "") -> socket.socket:
        connection = self.connect(role)
        key = base64.b64encode(os.urandom(16)).decode()
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Extensions: permessage-deflate\r\n{shown}\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            one = connection.recv(1)
            if not one:
                break
            head += one
        assert b" 101 " in head[:20], head
        assert b"permessage-deflate" not in head, "the socket inflates what it is sent"
        return connection


def send_request(connection: socket.socket, wire: bytes) -> Answered:
    """Send the request, read the answer to its end, and return its status; `cut` if the connection ended without."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(wire)
    got, head, left = 0, b"", 1
    with contextlib.suppress(ConnectionError):
        while left > 0 and (more := connection.recv(READ_BYTES)):
            got += len(more)
            if head.endswith(END):
                left -= len(more)
                continue
            head += more
            if END in head:
                head, _, body = head.partition(END)
                found = re.search(rb"content-length: *([0-9]+)", head.lower())
                left = (int(found[1]) if found else 0) - len(body)
                head += END
    return Answered(head.split(b" ")[1].decode() if head else "cut", got)


def frame(payload: bytes, *, text: bool, flags: int = 0x80) -> bytes:
    """Return a WebSocket frame of a client. Its mask is zero, so that the payload stays as it is."""
    length = len(payload)
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 65_536:
        size = bytes([0x80 | 126]) + struct.pack(">H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack(">Q", length)
    return bytes([flags | (1 if text else 2)]) + size + bytes(4) + payload


PING = bytes([0x89, 0x80]) + bytes(4)
CLOSE, PONG = 8, 10


def send_frame(connection: socket.socket, wire: bytes) -> Answered:
    """Send a frame and a ping; return `ok` when the ping is answered, which is after the frame, or the close code."""
    got = 0
    with contextlib.suppress(ConnectionError):
        connection.sendall(wire + PING)
    try:
        while True:
            kind, payload = read_frame(connection)
            got += len(payload)
            if kind == PONG:
                return Answered("ok", got)
            if kind == CLOSE:
                return Answered(str(int.from_bytes(payload[:2], "big")), got)
    except (ConnectionError, EOFError):
        return Answered("cut", got)


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    first, second = exactly(connection, 2)
    length = second & 127
    if length == 126:
        (length,) = struct.unpack(">H", exactly(connection, 2))
    elif length == 127:
        (length,) = struct.unpack(">Q", exactly(connection, 8))
    return first & 15, exactly(connection, length)


def exactly(connection: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        more = connection.recv(min(count - len(got), READ_BYTES))
        if not more:
            raise EOFError
        got += more
    return bytes(got)
