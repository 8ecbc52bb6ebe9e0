"""Requests to drain a Worker, and which events of its drain were written.

That a Worker drains is its mode, which the steps know. By when, and how patiently, is a request beside it in `drains`,
one field per WorkerID. No step reads the request; each change is one command, or the script `say_once`. A WorkerID
never comes back, so what is left of one that is gone can be removed by anybody at any time. Times are the store's.
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
    """How a Worker is to be drained. `lives` is how many there were; 0 for a deadline that nobody set."""

    asked_at_ms: int
    lives: int
    boundary_wait_s: float
    deadline_at_ms: int = 0


class DrainRecords(Part):
    """The drains of a cell."""

    async def all(self) -> dict[str, DrainRequest]:
        """Every request, by WorkerID; one that cannot be read counts as not there."""
        found = hash_of(await self._call("HGETALL", "drains"))
        read = {worker: _read(value) for worker, value in found.items() if " " not in worker}
        return {worker: request for worker, request in read.items() if request is not None}

    async def get(self, worker: str) -> DrainRequest | None:
        """The request for one Worker."""
        value = await self._call("HGET", "drains", "", worker)
        return None if value is None else _read(value)

    async def put(self, worker: str, request: DrainRequest) -> None:
        """Write a request, or replace it."""
        await self._call("HSET", "drains", "", worker, msgspec.json.encode(request))

    async def forget(self, workers: Iterable[str]) -> bool:
        """Forget the requests for these Workers, and what was said of their drains; whether there was anything."""
        fields = [field for worker in workers for field in (worker, *(f"{worker} {what}" for what in SAID))]
        return bool(fields) and bool(await self._call("HDEL", "drains", "", *fields))

    async def first_to_say(self, worker: str, what: Said) -> bool:
        """Whether nobody has said this yet of the Worker's drain: every replica sees the same, and one says it.

        Of a drain that was cancelled nothing more is said: a replica may still see it for a moment.
        """
        return bool(await self._run("say_once", worker, what))


def _read(value: bytes) -> DrainRequest | None:
    try:
        return msgspec.json.decode(value, type=DrainRequest)
    except msgspec.MsgspecError:
        return None
