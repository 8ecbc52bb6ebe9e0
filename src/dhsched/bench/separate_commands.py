"""Placement as separate commands, with locks and compare-and-set, as the paper's Dispatch sends them (7.3).

A create takes 8 + 6N operations for N candidate attempts. Around the attempts: lock the live, read its record, read the
cell; commit on condition, turn the reservation into membership, index the live, put it on the agenda, unlock. For each
attempt: lock the Worker, read its record, reserve on condition, count its load, update the Pool's index of Workers,
unlock; an attempt that is refused stops after four of them. "The common case of two to three attempts uses about
twenty."

Each command waits for its answer, as in the paper. `pipelined` is the best case of this design: commands that do not
depend on each other are sent together, which leaves 5 + 3N round trips. Both use the same store link as dhsched. Both
leave half-done states if they stop in the middle; that is not measured here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dhsched.errors import DhschedError
from dhsched.store.link.link import Link

PREFIX = "dh:{main}:paper:"  # The same slot as the cell, so that the same link reaches it.
LOCK_MS = 5_000  # A lock expires after this time.
CLAIM_MS = 15_000  # Score of a new live on the agenda, from now.
LOCK_TRIES = 1_000  # After this many attempts to lock, the benchmark ends with an error.
LOCK_WAIT_S = 0.0005  # First wait for a lock; each next wait is twice as long, up to LOCK_WAIT_MAX_S.
LOCK_WAIT_MAX_S = 0.004

RESERVE = b"""
local load = redis.call('HLEN', KEYS[1])
if load >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], 'reserved')
return load + 1
"""
COMMIT = b"""
local epoch = redis.call('HGET', KEYS[1], 'epoch') or '0'
if epoch ~= ARGV[1] then return {'STALE', epoch} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'selected', ARGV[3], 'active', '', 'state', 'open', 'digital_id', ARGV[4],
  'fingerprint', ARGV[5], 'cause', 'create', 'operation', ARGV[6])
return {'COMMITTED', ARGV[2]}
"""
UNLOCK = b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
SCRIPTS = {"paper_reserve": RESERVE, "paper_commit": COMMIT, "paper_unlock": UNLOCK}


@dataclass(frozen=True, slots=True)
class SeparateCommands:
    """Placement by separate commands over a link that has SCRIPTS loaded."""

    link: Link
    pipelined: bool = False

    async def register(self, worker: str, pool: str, capacity: int) -> None:
        await self.link.call(
            *("HSET", f"{PREFIX}worker:{worker}", "pool", pool, "capacity", capacity),
            *("load", 0, "mode", "ready", "lost", "", "gone", "", "beat", 1),
        )
        await self.link.call("ZADD", f"{PREFIX}free:{pool}", 0, worker)

    async def create(self, live: str, operation: str, candidates: tuple[str, ...]) -> str:
        """Place a new live on the first candidate with a free slot, and return that Worker."""
        key, lock = f"{PREFIX}live:{live}", f"{PREFIX}lock:live:{live}"
        await self._lock(lock, operation)
        record, cell = await self._together(
            lambda: self.link.call("HGETALL", key),
            lambda: self.link.call("HMGET", f"{PREFIX}cell", "epoch_base", "epoch_floor", "term"),
        )
        if record:
            await self._unlock(lock, operation)
            return str(record[b"selected"].decode())
        epoch = max(int(cell[0] or 0), int(cell[1] or 0)) + 1
        for worker in candidates:
            if await self._reserve(worker, f"{live}@{epoch}", operation):
                break
        else:
            await self._unlock(lock, operation)
            raise DhschedError(f"the benchmark found no free slot for {live}; this is a bug, report it")
        committed = await self.link.run("paper_commit", [key], [0, epoch, worker, "anna", "f" * 32, operation])
        if committed[0] != b"COMMITTED":
            raise DhschedError(f"the benchmark's commit of {live} answered {committed!r}; this is a bug, report it")
        await self._together(
            lambda: self.link.call("HSET", f"{PREFIX}slots:{worker}", f"{live}@{epoch}", "starting"),
            lambda: self.link.call("ZADD", f"{PREFIX}lives", 0, live),
            lambda: self.link.call("ZADD", f"{PREFIX}agenda", time.time_ns() // 1_000_000 + CLAIM_MS, live),
            lambda: self.link.run("paper_unlock", [lock], [operation]),
        )
        return worker

    async def _reserve(self, worker: str, tag: str, operation: str) -> bool:
        lock, slots = f"{PREFIX}lock:worker:{worker}", f"{PREFIX}slots:{worker}"
        await self._lock(lock, operation)
        record = await self.link.call(
            "HMGET", f"{PREFIX}worker:{worker}", "pool", "capacity", "mode", "lost", "gone", "beat"
        )
        pool, capacity, mode = record[0].decode(), int(record[1]), record[2]
        if mode != b"ready" or record[3] or record[4]:
            await self._unlock(lock, operation)
            return False
        if (load := await self.link.run("paper_reserve", [slots], [capacity, tag])) == 0:
            await self._unlock(lock, operation)
            return False
        await self._together(
            lambda: self.link.call("HINCRBY", f"{PREFIX}worker:{worker}", "load", 1),
            lambda: self.link.call("ZADD", f"{PREFIX}free:{pool}", load / capacity, worker),
            lambda: self.link.run("paper_unlock", [lock], [operation]),
        )
        return True

    async def _lock(self, key: str, owner: str) -> None:
        wait_s = LOCK_WAIT_S
        for _ in range(LOCK_TRIES):
            if await self.link.call("SET", key, owner, "NX", "PX", LOCK_MS):
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LOCK_WAIT_MAX_S)
        raise DhschedError(
            f"the benchmark did not get lock {key} in {LOCK_TRIES} tries; the machine is too busy: run it again"
        )

    async def _unlock(self, key: str, owner: str) -> None:
        await self.link.run("paper_unlock", [key], [owner])

    async def _together(self, *calls: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Make these calls and return their answers; if `pipelined`, in one tick, so that the link sends one write."""
        if not self.pipelined:
            return [await call() for call in calls]
        issued = [call() for call in calls]
        return [await each for each in issued]
