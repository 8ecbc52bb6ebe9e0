"""Processes of a benchmark: started, measured by their own CPU time and memory, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import sys
import time
from typing import Any

from dhsched.errors import DhschedError

# A benchmark may have used encoders that own threads. Collected in a forked child, which has none of them, they would
# wait for ever, and we for the child: no garbage is collected there.
os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)

START_S = 60.0
OPEN = ("--access", "open")  # What is measured is not keys, and nobody else knows the ports.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Child:
    """One process that prints lines; JSON ones are kept."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.url = ""
        self.consumed = 0
        self.late_ms: list[float] = []
        self.ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self.process.pid

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if b" listens on " in line or line.startswith(b"ready"):
                self.url = line.decode().split()[-1]
                self.ready.set()
            elif line.startswith(b'{"consumed"'):
                said: dict[str, Any] = json.loads(line)
                self.consumed = said["consumed"]
                self.late_ms += said["late_ms"]

    async def until_ready(self) -> str:
        try:
            await asyncio.wait_for(self.ready.wait(), START_S)
        except TimeoutError:
            raise DhschedError(f"{self.name} was not ready after {START_S:g} s") from None
        return self.url

    async def until_consumed(self, count: int, wait_s: float) -> None:
        give_up = time.monotonic() + wait_s
        while self.consumed < count:
            if time.monotonic() > give_up:
                raise DhschedError(f"{self.name} consumed {self.consumed} of {count} items in {wait_s:g} s")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


async def start(name: str, *arguments: str, limit: int = 2**24) -> Child:
    """`python ARGUMENTS` as a child that ends with us."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        limit=limit,
    )
    return Child(name, process)


def free_port() -> int:
    """A port that was free a moment ago, for what must be known before it listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def cpu_s(pid: int) -> float:
    """User and system time of a process, all threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def percentile(values: list[float], share: float) -> float:
    return round(sorted(values)[int(share * (len(values) - 1))], 3) if values else 0.0
