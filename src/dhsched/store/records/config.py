"""Pools, DigitalIDs and limits of tenants, as JSON in one hash each. `config_rev` grows with every change."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dhsched.store.raw import hash_of
from dhsched.store.records.part import Part

T = TypeVar("T")


class ConfigRecords(Part):
    """The configuration of a cell."""

    async def rev(self) -> int:
        """Return the revision of the last change."""
        return int(await self._call("HGET", "cell", "", "config_rev") or 0)

    async def all(self, kind: str, what: type[T]) -> dict[str, T]:
        """Return all records of a kind (Pools, DigitalIDs, tenants), by name."""
        found = hash_of(await self._call("HGETALL", kind))
        return {name: msgspec.json.decode(value, type=what) for name, value in sorted(found.items())}

    async def put(self, kind: str, name: str, value: msgspec.Struct | None) -> bool:
        """Put (or, without a value, delete) a record of a kind. Return whether it was there before."""
        encoded = b"" if value is None else msgspec.json.encode(value)
        known, _rev = await self._run("configure", kind, name, encoded, counted=True)
        return bool(known)
