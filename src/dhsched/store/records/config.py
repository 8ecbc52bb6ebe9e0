"""Pools, DigitalIDs and limits of tenants, as JSON in one hash each. `config_rev` grows with every change.

Where a deployment has several cells, the first one is where these are written, and the key ring too; every other cell
has a copy of both, which is replaced as a whole (`copy`, `take_over`).
"""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple, TypeVar

import msgspec

from dhsched.store.raw import hash_of
from dhsched.store.records.part import Part

T = TypeVar("T")
What = Literal["config", "keys"]
KINDS: dict[What, tuple[str, ...]] = {"config": ("pools", "digital_ids", "tenants"), "keys": ("keys",)}
TAKE_OVER_S = 5.0  # For a whole copy, which may have thousands of keys.


class Copy(NamedTuple):
    """All of the configuration, or the key ring, as of its revision: (kind, field, value) of each record."""

    rev: int
    rows: tuple[tuple[str, bytes, bytes], ...]


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

    async def revs(self) -> dict[What, int]:
        """Return the revisions of the configuration and of the key ring."""
        config, keys = await asyncio.gather(
            self._call("HGET", "cell", "", "config_rev"), self._call("HGET", "keys", "", "rev")
        )
        return {"config": int(config or 0), "keys": int(keys or 0)}

    async def copy(self, what: What) -> Copy | None:
        """Return the whole configuration, or the whole key ring; None if it changed while it was read."""
        rev = (await self.revs())[what]
        found = [hash_of(await self._call("HGETALL", kind)) for kind in KINDS[what]]
        if (await self.revs())[what] != rev:
            return None
        rows = [
            (kind, field.encode(), value)
            for kind, one in zip(KINDS[what], found, strict=True)
            for field, value in sorted(one.items())
            if (kind, field) != ("keys", "rev")
        ]
        return Copy(rev, tuple(rows))

    async def take_over(self, what: What, copy: Copy, *, also_equal: bool) -> bool:
        """Replace the whole configuration, or the key ring, by a copy of another cell's, unless what is here is newer,
        or as new and not `also_equal`; return whether it was replaced."""
        flat = [part for row in copy.rows for part in row]
        kinds, equal = " ".join(KINDS[what]), "1" if also_equal else ""
        (taken,) = await self._run("copy_config", kinds, copy.rev, equal, *flat, deadline_s=TAKE_OVER_S)
        return bool(taken)
