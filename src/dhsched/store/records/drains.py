"""Requests to drain a Worker, and which events of its drain were written.

A draining Worker has the mode `draining`, which the steps know. The deadline and the patience are a request beside it
in `drains`, one field per WorkerID. No step reads the request; each change is one command, or the script `say_once`. A
WorkerID never comes back, so the request of a gone Worker can be removed by anybody at any time. Times are the store's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from dhsched.store.raw import hash_of
from dhsched.store.records.part import Part

Said = Literal["blocked", "done"]
SAID: tuple[str, ...] = get_args(Said)


class DrainRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a drain. `lives` is how many there were at its beginning; `deadline_at_ms` 0 means no deadline.
    With `to_cell` the Worker registers in that cell once it is empty."""

    asked_at_ms: int
    lives: int
    boundary_wait_s: float
    deadline_at_ms: int = 0
    to_cell: str = ""


class DrainRecords(Part):
    """The drains of a cell."""

    async def all(self) -> dict[str, DrainRequest]:
        """Return every request by WorkerID; a request that cannot be read is left out."""
        found = hash_of(await self._call("HGETALL", "drains"))
        read = {worker: _read(value) for worker, value in found.items() if " " not in worker}
        return {worker: request for worker, request in read.items() if request is not None}

    async def get(self, worker: str) -> DrainRequest | None:
        """Return the request for one Worker; None if there is none."""
        value = await self._call("HGET", "drains", "", worker)
        return None if value is None else _read(value)

    async def put(self, worker: str, request: DrainRequest) -> None:
        """Write a request, or replace it."""
        await self._call("HSET", "drains", "", worker, msgspec.json.encode(request))

    async def forget(self, workers: Iterable[str]) -> bool:
        """Remove the requests for these Workers and the marks of their events. Return whether there were any."""
        fields = [field for worker in workers for field in (worker, *(f"{worker} {what}" for what in SAID))]
        return bool(fields) and bool(await self._call("HDEL", "drains", "", *fields))

    async def first_to_say(self, worker: str, what: Said) -> bool:
        """Mark an event of the Worker's drain as written. Return True for the one replica that was first.

        For a drain that was cancelled the answer is False: a replica may still see that drain for a moment.
        """
        return bool(await self._run("say_once", worker, what))


def _read(value: bytes) -> DrainRequest | None:
    try:
        return msgspec.json.decode(value, type=DrainRequest)
    except msgspec.MsgspecError:
        return None
