"""What one request or frame costs: the roles run in a thread of their own, and bytes are sent to them over raw sockets.

CPU is the time of every thread but the sender's, and of the store's server: no wall-clock, so a busy machine changes
little of it; the least of a few repetitions is taken. A tick is one iteration of the roles' event loop, in CPU time.
Memory is the peak of Python's allocations while the input is handled, and what stays of it afterwards. The bytes on the
wire are those that were sent; for the peak of memory the answer counts too, because it is kept until it is sent.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dhsched.access.callers import ROLES
from dhsched.local.ports import free_port
from dhsched.tokens import Boot
from dhsched.web.reading import READ_BYTES
from tests.harness.fleet import PATIENCE_S, fleet
from tests.harness.fuzz_wire import Answered, upgrade_request
from tests.harness.replicas import register
from tests.harness.theatre import Theatre, stage

T = TypeVar("T")

CPU_S, CPU_S_PER_KB = 0.005, 0.005  # For one request or frame, and for each kilobyte that was sent.
TICK_S = 0.020
MEMORY_TIMES = 10  # Bytes of memory for each byte that was sent,
MEMORY_BYTES = 48 * 1024  # and for a request as such: the smallest need up to 30 kB for tasks, headers and the answer.
KEPT_BYTES = 24 * 1024  # What may stay of a request as such.
SCAN_S, SCAN_BYTES = 0.010, 64 * 1024
"""What a request that reads all lives of the deployment, to end those that match, may need beside that."""
PEER_CONNECTION_BYTES = 160 * 1024
"""What an offer may need beside that: each makes a peer connection of aiortc, which has 130 kB of its own."""
CALM = {
    "refresh_min_s": 20,
    "refresh_max_s": 30,
    "fresh_s": 600,
}  # So that a replica does nothing by itself while it is measured.
ROOM: dict[str, Any] = {"viewer_rate_per_s": 1_000, "live_rate_per_s": 1_000}
QUIET_S = 0.002  # The roles have done their work when they use no CPU for this long.


@dataclass(frozen=True, slots=True)
class Row:
    """One input: `open` makes a connection for it, which is not measured; `send` sends it there.

    Where access is by keys, a request carries the token of `Deployment.tokens` that `shown` names.
    """

    target: str
    shape: str
    wire: bytes
    open: Callable[[Sender], socket.socket]
    send: Callable[[socket.socket, bytes], Answered]
    shown: str = ""

    @property
    def name(self) -> str:
        return f"{self.target} {self.shape}"


@dataclass(slots=True)
class Cost:
    """The measured cost of a row; `answer` is a status, a close code, or what came back."""

    row: Row
    sent_bytes: int
    answer: Answered
    cpu_s: float
    store_s: float
    tick_s: float
    peak_bytes: int = 0
    kept_bytes: int = 0

    def over(self) -> list[str]:
        """Return the limits that the row is over, with the figures."""
        wire = self.sent_bytes
        scans = self.row.target == "dispatch end_lives"
        cpu_max_s = CPU_S + CPU_S_PER_KB * wire / 1e3 + (SCAN_S if scans else 0)
        as_such = MEMORY_BYTES + (PEER_CONNECTION_BYTES if self.row.target == "room offer" else 0)
        as_such += SCAN_BYTES if scans else 0
        limits = {
            "CPU": (1e3 * (self.cpu_s + self.store_s), 1e3 * cpu_max_s, "ms"),
            "one tick": (1e3 * self.tick_s, 1e3 * TICK_S, "ms"),
            "peak memory": (
                self.peak_bytes / 1e3,
                (as_such + MEMORY_TIMES * (wire + self.answer.answer_bytes)) / 1e3,
                "kB",
            ),
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
        sizes = f"{cost.answer.what[:8]:>8} {cost.sent_bytes:8} {cost.answer.answer_bytes:8}"
        lines.append(
            f"{cost.row.name[:58]:58} {sizes} {times} {cost.peak_bytes / 1e3:8.0f} {cost.kept_bytes / 1e3:8.1f}"
        )
    return "\n".join(lines)


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the CPU time of its longest tick, and treats memory like the loop of the product."""

    longest_s = 0.0

    def _make_socket_transport(self, *given: Any, **named: Any) -> asyncio.Transport:
        """asyncio allocates 256 KiB for each read, and frees what was not filled. uvloop, on which the roles run, reads
        into a buffer of the loop."""
        made: Any = super()._make_socket_transport(*given, **named)  # type: ignore[misc]
        made.max_size = READ_BYTES
        made.writelines = lambda parts: [*map(made.write, parts)]  # The same: asyncio would join them first.
        return made  # type: ignore[no-any-return]

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - began)


@dataclass
class Deployment:
    """Dispatch, Infer and a room with a live `demo`, in a thread."""

    folder: Path
    access: str = "open"
    tokens: dict[str, str] = field(default_factory=dict)
    """What requests carry, by role; empty where access is open."""
    loop: TimedLoop = field(init=False)
    at: Theatre = field(init=False)
    keys: dict[str, str] = field(init=False)
    workers: list[str] = field(init=False)
    demo_worker: str = field(init=False)

    def __enter__(self) -> Deployment:
        ready = threading.Event()
        self._failed: list[BaseException] = []

        async def serve() -> None:
            async with AsyncExitStack() as stack:
                port = free_port()
                room = f"http://127.0.0.1:{port}"
                given: dict[str, Any] = {"access": self.access, "key_rate_per_s": 1e5}
                made = await stack.enter_async_context(fleet(self.folder, replica=CALM | given, room=room, **given))
                key = await made.key("room") if self.access == "keys" else ""
                shown = {"access": self.access, "key": key, **ROOM}
                self.at = await stack.enter_async_context(stage(made, port, **shown))
                self.loop = asyncio.get_running_loop()  # type: ignore[assignment]
                self.workers = await register(made.replicas[0].store, 4, capacity=50)
                await made.replicas[0].fleet.refresh()
                self.demo_worker = (await made.create("demo"))["worker"]
                await made.create("spare")
                if self.access == "keys":
                    self.keys = {role: await made.key(role) for role in ROLES}
                    await self.renew()
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

    async def renew(self) -> None:
        """Have new tokens made, because a row may have made the earlier ones void."""
        made = self.at.fleet
        await made.sign_in(self.keys["admin"])
        tokens = {role: await made.mint(key) for role, key in self.keys.items()}
        tokens |= {f"{role} key": key for role, key in self.keys.items()}
        tokens |= {"viewer": await self.at.viewer_token(), "boot": self.boot_token()}
        tokens |= {f"forged {name}": token[:-8] + "AAAAAAAA" for name, token in tokens.items()}
        self.tokens = tokens

    def boot_token(self) -> str:
        """Return the token of a Worker's boot, with which it pulls."""
        boot = Boot(self.workers[0], "boot-gpu-w-0", "w0", "gpu", 50)
        return self.at.fleet.controllers[0].pull_text.tokens.issue(boot)

    def signed(self, row: Row) -> bytes:
        """Return what is sent for a row, with its token."""
        token = self.tokens.get(row.shown)
        if not token:
            return row.wire
        first, rest = row.wire.split(b"\r\n", 1)
        return b"%b\r\nAuthorization: Bearer %b\r\n%b" % (first, token.encode(), rest)

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
        least.peak_bytes, least.kept_bytes = self._memory_bytes(row)
        return least

    def _memory_bytes(self, row: Row) -> tuple[int, int]:
        """Return the peak of the memory that a row needs, and what stays of it once its connection is closed.

        The first time is not measured: what it replaces, such as the key ring, was allocated before, and would not
        count as freed.
        """
        with tracing():
            self._peak_bytes(row)
            self.renew_if_void(row)
            empty = tracemalloc.get_traced_memory()[0]
            peak = self._peak_bytes(row)
            kept = tracemalloc.get_traced_memory()[0] - empty
            if kept > KEPT_BYTES:
                gc.collect()  # It takes long, and most rows do without.
                kept = tracemalloc.get_traced_memory()[0] - empty
        self.renew_if_void(row)
        return peak, kept

    def _peak_bytes(self, row: Row) -> int:
        wire = self.signed(row)
        with sender(self) as sending:
            connection = row.open(sending)
            self.settle()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            row.send(connection, wire)
            self.settle()
            peak = tracemalloc.get_traced_memory()[1] - before
        self.settle()
        return peak

    def _once(self, row: Row) -> Cost:
        wire = self.signed(row)
        with sender(self) as sending:
            connection = row.open(sending)
            self.settle()
            store_s, cpu_s = self.store_s(), self.cpu_s()
            self.loop.longest_s = 0.0
            answer = row.send(connection, wire)
            self.settle()
            cpu_s, tick_s = self.cpu_s() - cpu_s, self.loop.longest_s
            cost = Cost(row, len(wire), answer, cpu_s, self.store_s() - store_s, tick_s)
        self.renew_if_void(row)
        return cost

    def renew_if_void(self, row: Row) -> None:
        if self.tokens and "rotate_secret" in row.target:
            self.call(self.renew())


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
        connection.sendall(upgrade_request(path, token))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            one = connection.recv(1)
            if not one:
                break
            head += one
        assert b" 101 " in head[:20], head
        assert b"permessage-deflate" not in head, "the socket inflates what it is sent"
        return connection
