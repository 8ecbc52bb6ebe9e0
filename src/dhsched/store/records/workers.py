"""Workers: their records and slot tables, their beats, and the troubles of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from dhsched.ownership.state import Worker
from dhsched.store.raw import decode_worker, hash_of
from dhsched.store.records.part import Part
from dhsched.store.records.server import ServerRecords
from dhsched.store.steps.replies import text

TROUBLES_MAX = 256  # Past this many troubles of one Worker name, the oldest is dropped.


class Beat(NamedTuple):
    """A Worker's beat, as the store has it."""

    beat: int
    lost: bool
    mode: str


class DeviceRow(NamedTuple):
    """A device of a Worker: how many lives have crashed on it lately, and whether the Worker finds that too many."""

    name: str
    crashes: int
    blamed: bool


def encode_devices(rows: Sequence[DeviceRow]) -> str:
    """Return devices as they are stored: `name crashes blamed`, a line each."""
    return "\n".join(f"{row.name} {row.crashes} {row.blamed:d}" for row in rows)


def decode_devices(stored: bytes | None) -> list[DeviceRow]:
    rows = (line.split() for line in text(stored or b"").splitlines())
    return [DeviceRow(name, int(crashes), blamed == "1") for name, crashes, blamed in rows]


class WorkerRecords(Part):
    """The Workers of a cell, by WorkerID."""

    async def names(self) -> list[str]:
        """Return every Worker that has a record, the one that changed last at the end."""
        return [text(worker) for worker in await self._call("ZRANGE", "workers", "", 0, -1)]

    async def get(self, worker: str) -> tuple[Worker, dict[str, str]] | None:
        """Return a Worker's record and its slot table; None if there is no such Worker."""
        record, slots = await asyncio.gather(self._call("HGETALL", "worker", worker), self.slots(worker))
        return None if not record else (decode_worker(hash_of(record)), slots)

    async def slots(self, worker: str) -> dict[str, str]:
        """Return the state of each slot, by its tag."""
        return {tag: text(state) for tag, state in hash_of(await self._call("HGETALL", "slots", worker)).items()}

    async def departing(self, worker: str) -> list[str]:
        """Return the tags of slots whose runtime the Worker must stop."""
        return [tag for tag, state in (await self.slots(worker)).items() if state == "departing"]

    async def is_empty(self, worker: str) -> bool:
        """Return whether no slot of any kind is left on the Worker."""
        return not await self._call("HLEN", "slots", worker)

    async def exists(self, worker: str) -> bool:
        """Return whether there is such a Worker and it is not gone."""
        name, gone = await self._call("HMGET", "worker", worker, "name", "gone")
        return name is not None and gone != b"1"

    def lost(self, worker: str) -> asyncio.Future[Any]:
        """Return whether the Worker is lost, for `is_yes`: a future, so that the next call is answered next."""
        return self._call("HGET", "worker", worker, "lost")

    async def mode(self, worker: str) -> str:
        """Return the mode that the Worker was set to; empty if there is no such Worker."""
        return text(await self._call("HGET", "worker", worker, "mode") or b"")

    async def cutovers_max(self, worker: str) -> int:
        """Return how many lives of the Worker may be moving away at once; 0 if there is no such Worker."""
        pace, each = await self._call("HMGET", "worker", worker, "pace", "cutovers_max")
        return int(pace or 1) * int(each or 0)

    async def beats(self) -> dict[str, Beat]:
        """Return the beat of every Worker that is not gone. While the cell's slot is being moved, this call waits, and
        fails like a script: the keys can still be read there, but no report can move a beat."""
        workers = await self.names()
        rows = await self._read_fields("worker", workers, "beat", "lost", "gone", "mode")
        return {
            worker: Beat(int(beat), is_yes(lost), text(mode or b""))
            for worker, (beat, lost, gone, mode) in zip(workers, rows, strict=True)
            if beat is not None and not is_yes(gone)
        }

    async def planned_load(self, worker: str) -> tuple[int, int]:
        """Return a Worker's load once the moves under way are done, and its running lives that have no move.

        A live with a move counts at its target: its reserved slot is there, and its source counts the live among its
        cutovers.
        """
        states, cutovers = await asyncio.gather(
            self._call("HVALS", "slots", worker), self._call("HGET", "worker", worker, "cutovers")
        )
        held = sum(1 for state in states if state != b"departing")
        running = sum(1 for state in states if state == b"running")
        leaving = int(cutovers or 0)
        return held - leaving, max(0, running - leaving)

    async def drift(self, worker: str) -> tuple[int, int] | None:
        """Return a Worker's load and its number of slots if the two differ in three readings in a row; else None.

        The two are read one after the other, so a step may fall between them, but hardly three times.
        """
        for _ in range(3):
            load, slots = await asyncio.gather(
                self._call("HGET", "worker", worker, "load"), self._call("HLEN", "slots", worker)
            )
            if load is None or int(load) == slots:
                return None
        return int(load), slots

    async def devices(self, worker: str) -> list[DeviceRow]:
        """Return a Worker's devices, if it has named them."""
        return decode_devices(await self._call("GET", "devices", worker))

    async def put_devices(self, worker: str, rows: Sequence[DeviceRow]) -> list[DeviceRow]:
        """Replace a Worker's devices, and return them as they were before."""
        return decode_devices(await self._run("note_devices", worker, encode_devices(rows)))

    async def trouble(self, name: str, member: str, window_ms: int) -> tuple[bool, list[str]]:
        """Note a trouble of a Worker's name, or none. Return whether it is new, and all troubles within the window."""
        reply = await self._run("trouble", name, member, window_ms, TROUBLES_MAX)
        return bool(reply[0]), [text(each) for each in reply[1:]]

    async def troubles(self, name: str, window_ms: int) -> list[str]:
        """Return the troubles of a Worker's name within the window, without noting one."""
        now_ms = await ServerRecords(self._link).now_ms()
        found = await self._call("ZRANGEBYSCORE", "trouble", name, f"({now_ms - window_ms}", "+inf")
        return [text(each) for each in found]

    async def boots(self, name: str) -> int:
        """Return how often a Worker of this name has registered in its current window; 0 if none did."""
        return int(await self._call("HGET", "blame", name, "boots") or 0)

    async def forget_troubles(self, name: str) -> None:
        await self._call("DEL", "trouble", name)


def is_yes(reply: bytes | None) -> bool:
    """Return whether a field that is either 1 or absent is set."""
    return reply == b"1"
