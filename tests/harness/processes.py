"""Roles as processes of their own, for tests that stop, kill and thaw them."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dhsched.local import process
from dhsched.local.deployment import Deployment
from tests.harness.fleet import Fleet, until

START_S = process.START_S
ROOT = Path(__file__).parents[2]


class Process(process.Process):
    """A process, and what it printed: `printed` line by line, `lines` decoded where they are JSON."""

    folder = ROOT

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.lines: list[Any] = []
        self._consumed: dict[str, list[tuple[int, int, str]]] = defaultdict(list)

    def consumed(self, live: str) -> list[tuple[int, int, str]]:
        """What the echo runtime consumed of a live: epoch, seq, text."""
        return self._consumed.get(f"default/{live}", [])

    def opened(self, live: str) -> list[int]:
        return [line["epoch"] for line in self.lines if line.get("event") == "open" and line["live"].endswith(live)]

    def heard(self, line: bytes) -> None:
        super().heard(line)
        if line.startswith(b"{"):
            said = json.loads(line)
            self.lines.append(said)
            if "seq" in said and "live" in said:
                self._consumed[said["live"]].append((said["epoch"], said["seq"], said["text"]))


async def start(*arguments: str, environment: Mapping[str, str] | None = None) -> Process:
    """`dhsched ARGUMENTS`, which ends with this process."""
    return await Process.start(" ".join(arguments[:2]), *arguments, environment=environment)


class Processes(Deployment):
    """A deployment whose output a test reads."""

    kind = Process

    async def worker(self, name: str, *options: str, **how: Any) -> Process:
        if {"--exec", "--runtime"} & {*options}:
            how["runtime"] = ""
        made = await super().worker(name, *options, **how)
        assert isinstance(made, Process)
        return made


class FleetProcesses(Processes):
    """Workers as processes, beside a fleet of which everything else runs here."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(folder=fleet.folder, dispatch=fleet.dispatch, infer=fleet.infer, log_level="warning")
        self.fleet = fleet

    async def workers_ready(self, count: int) -> list[dict[str, Any]]:
        for _ in range(int(START_S / 0.05)):
            found: list[dict[str, Any]] = (await self.fleet.get("/v1/workers"))["workers"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"{count} Workers were not there after {START_S:g} s")


@asynccontextmanager
async def processes(fleet: Fleet) -> AsyncIterator[FleetProcesses]:
    async with FleetProcesses(fleet) as made:
        yield made


async def until_consumed(process: Process, live: str, text: str) -> None:
    await until(lambda: any(one[2] == text for one in process.consumed(live)), f"{text!r} on {live}", START_S)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []
