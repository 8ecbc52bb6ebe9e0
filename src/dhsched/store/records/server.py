"""The server itself: its time, its memory, and whether it may delete our keys.

A server at its `maxmemory` either refuses what would need more (noeviction), or deletes keys by its policy: any key
(`allkeys-*`), or only keys that expire (`volatile-*`). Of ours, lives, slots and input never expire; the few keys that
do are counts and marks (docs/reference/state.md), so only `allkeys-*` is dangerous. That policy is refused whether a
limit is set or not: a limit can be set at any time, and then the first key that the server deletes may be the record of
a live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dhsched.errors import StoreIncompatible
from dhsched.store.link.link import Link
from dhsched.store.steps.replies import text

REMEDY = "CONFIG SET maxmemory-policy noeviction, and in its configuration file"


class ServerRecords:
    """The server's own figures."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def ping(self, *, deadline_s: float | None = None) -> asyncio.Future[Any]:
        """Send PING; a server that serves answers."""
        return self._link.call("PING", deadline_s=deadline_s)

    async def now_ms(self) -> int:
        """Return the store's time, by which everything in it is dated."""
        seconds, micros = await self._link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def info(self, *sections: str) -> Mapping[str, str]:
        """Return the fields of INFO by name."""
        pairs = (line.partition(":") for line in text(await self._link.call("INFO", *sections)).splitlines())
        return {name: value for name, found, value in pairs if found}

    async def memory_share(self) -> float:
        """Return the used share of the store's memory, from 0 to 1; 0 if it has no limit."""
        info = await self.info("memory")
        limit = int(info.get("maxmemory", 0))
        return int(info.get("used_memory", 0)) / limit if limit else 0.0

    async def refuse_eviction(self, *, allowed: bool) -> None:
        """Raise StoreIncompatible for a store that may delete lives, unless `allowed`."""
        if allowed:
            return
        policy = (await self.info("memory")).get("maxmemory_policy", "noeviction")
        if evicts_lives(policy):
            raise StoreIncompatible(
                f"store {self._link.address.redacted()} may delete lives when its memory is full: its maxmemory-policy "
                f"is {policy}; {REMEDY}, or start all the same with --allow-eviction (DHSCHED_ALLOW_EVICTION)"
            )


def evicts_lives(policy: str) -> bool:
    return policy.startswith("allkeys")
