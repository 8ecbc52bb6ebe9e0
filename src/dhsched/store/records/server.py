"""The server itself: its time, its memory, and whether it may delete our keys.

A server at its `maxmemory` either refuses what would need more (noeviction), or deletes keys by its policy: any key
(`allkeys-*`), or only keys that expire (`volatile-*`). Of ours, lives, slots and input never expire; the few keys that
do are counts and marks (docs/reference/state.md), so only `allkeys-*` is dangerous. That policy is refused whether a
limit is set or not: a limit can be set at any time, and then the first key that the server deletes may be the record of
a live.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dhsched.errors import StoreIncompatible, StoreRefused
from dhsched.store.link.link import Link
from dhsched.store.steps.replies import text

REMEDY = "CONFIG SET maxmemory-policy noeviction, and in its configuration file"


class Replica(NamedTuple):
    """One replica, as its primary sees it: bytes of history that it has not confirmed."""

    address: str
    state: str
    behind_bytes: int


class Standing(NamedTuple):
    """How often the server writes its file to disk (`no` without a file, empty if unknown), and its replicas."""

    appendonly: str
    replicas: tuple[Replica, ...]


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

    async def standing(self) -> Standing:
        """Return how safe the server keeps its data: its file, and its replicas with what they lack."""
        info = await self.info("replication", "persistence")
        end = int(info.get("master_repl_offset", 0))
        rows = (info[name] for name in sorted(info) if re.fullmatch(r"slave\d+", name))
        replicas = tuple(_replica(dict(part.split("=", 1) for part in row.split(",")), end) for row in rows)
        appendonly = "no"
        if info.get("aof_enabled") == "1":
            try:
                fsync = text((await self._link.call("CONFIG", "GET", "appendfsync"))[b"appendfsync"])
                appendonly = {"no": "no fsync"}.get(fsync, fsync)
            except (StoreRefused, KeyError):
                appendonly = ""  # A server that does not tell, or not us.
        return Standing(appendonly, replicas)

    async def replicas_to_write(self) -> int | None:
        """Return how many replicas the server must have to take a write at all; None if it does not tell."""
        try:
            return int((await self._link.call("CONFIG", "GET", "min-replicas-to-write"))[b"min-replicas-to-write"])
        except (StoreRefused, KeyError):
            return None

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


def _replica(fields: Mapping[str, str], end: int) -> Replica:
    address = f"{fields.get('ip', '')}:{fields.get('port', '')}"
    return Replica(address, fields.get("state", ""), max(0, end - int(fields.get("offset", 0))))


def evicts_lives(policy: str) -> bool:
    return policy.startswith("allkeys")
