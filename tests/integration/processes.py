"""Roles as processes of their own, for tests that stop, kill and thaw them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.fleet import Fleet, until

START_S = 60.0
LEFT_S = 5.0  # For the rest of what a killed process printed.
ROOT = Path(__file__).parents[2]


class Process:
    """One process of `dhsched run ...`. `lines` are what it printed, decoded where they are JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[Any] = []
        self.printed: list[str] = []
        self._consumed: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.url = ""
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        # What it left behind, if anything, holds its output open: a test must find that, not wait for it.
        await asyncio.wait((self._reading,), timeout=LEFT_S)
        self._reading.cancel()

    def consumed(self, live: str) -> list[tuple[int, int, str]]:
        """What the echo runtime consumed of a live: epoch, seq, text."""
        return self._consumed.get(f"default/{live}", [])

    def opened(self, live: str) -> list[int]:
        return [line["epoch"] for line in self.lines if line.get("event") == "open" and line["live"].endswith(live)]

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.printed.append(line.decode())
            if b" listens on " in line:
                self.url = line.decode().split()[-1]
            elif line.startswith(b"{"):
                said = json.loads(line)
                self.lines.append(said)
                if "seq" in said and "live" in said:
                    self._consumed[said["live"]].append((said["epoch"], said["seq"], said["text"]))


async def start(*arguments: str, environment: Mapping[str, str] | None = None) -> Process:
    """`dhsched ARGUMENTS`, which ends with this process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dhsched.cli.child", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    return Process(process)


class Processes:
    """Workers as processes, beside a fleet of which everything else runs here."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.started: list[Process] = []

    async def worker(self, name: str, *arguments: str, device: str = "", capacity: int = 4) -> Process:
        runtime = () if "--exec" in arguments or "--runtime" in arguments else ("--runtime", "echo")
        process = await start(
            *("run", "worker", "--pool", "gpu", "--capacity", str(capacity), "--name", name),
            *("--device", device or name, "--dispatch", ",".join(self.fleet.dispatch)),
            *("--locks", str(self.fleet.folder), "--log-level", "warning", *runtime, *arguments),
        )
        self.started.append(process)
        return process

    async def workers_ready(self, count: int) -> list[dict[str, Any]]:
        for _ in range(int(START_S / 0.05)):
            found: list[dict[str, Any]] = (await self.fleet.get("/v1/workers"))["workers"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"{count} Workers were not there after {START_S:g} s")


@asynccontextmanager
async def processes(fleet: Fleet) -> AsyncIterator[Processes]:
    made = Processes(fleet)
    try:
        yield made
    finally:
        for process in made.started:
            with contextlib.suppress(ProcessLookupError):
                process.signal(signal.SIGCONT)
            await process.kill()


async def until_consumed(process: Process, live: str, text: str) -> None:
    await until(lambda: any(one[2] == text for one in process.consumed(live)), f"{text!r} on {live}", START_S)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody has waited for yet is not alive.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
