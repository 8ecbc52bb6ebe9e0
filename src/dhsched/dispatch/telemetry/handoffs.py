"""Handoff metrics: the phases of the generations that this replica committed, that is how long lives have no owner.

A replica that commits does not see the claim, so a loop reads the times later, for a bounded number of generations.
Further generations are not measured; nothing waits for the measurement. The store has dated each phase, so a late
reading measures the same: a generation is read once a second until it is claimed, then after twice as long each time,
because a live without input has its first ack in an hour or never.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram

from dhsched.store.records import Records
from dhsched.store.records.lives import Times

FOLLOWED_MAX = 1_000  # Generations followed at once, and new ones between two rounds; more are not measured.
ROUNDS_MAX = 120  # Rounds, a second apart, for which one generation is followed; then it is measured no further.
CLAIM, FIRST_ACK = "claim", "first_ack"
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Begun(NamedTuple):
    """A generation that was committed, as the replica knows it that committed it."""

    live: str
    epoch: int
    cause: str
    parent: str = ""
    """The `traceparent` of the request, if it had one."""
    took_ms: int = 0
    """How long the store's answer took."""
    reserved_at_ms: int = 0
    """When the slot of a planned move was reserved."""


@dataclass(slots=True)
class Following:
    """One generation that is followed, and how far it has been measured."""

    begun: Begun
    began: int
    pause: int = 1
    claimed: bool = False


class Handoffs:
    """The generations that this replica follows."""

    def __init__(self, records: Records, registry: CollectorRegistry) -> None:
        self._records = records
        self._round = 0
        self._new: deque[Begun] = deque(maxlen=FOLLOWED_MAX)
        self.follow = self._new.append
        """Follow a generation that was committed."""
        self.over: deque[Begun] = deque(maxlen=FOLLOWED_MAX)
        """Generations that are followed no further, for who traces them; the oldest are forgotten."""
        self._followed = 0
        self._due: defaultdict[int, list[Following]] = defaultdict(list)  # By the round in which they are read next.
        self._seconds = Histogram(
            "dhsched_handoff_seconds",
            "Phases of generations: commit to claim, claim to the first ack.",
            ["cause", "phase"],
            buckets=BUCKETS,
            registry=registry,
        )

    async def round(self) -> None:
        """Read the times of the followed generations that are due, and count the phases that are over."""
        self._round += 1
        for begun in self._new:
            if self._followed < FOLLOWED_MAX:
                self._followed += 1
                self._due[self._round].append(Following(begun, self._round - 1))
        self._new.clear()
        batch = self._due.pop(self._round, [])
        self._followed -= len(batch)
        times = await self._records.lives.times([each.begun.live for each in batch])
        for each, found in zip(batch, times, strict=True):
            if self._goes_on(each, found) and self._followed < FOLLOWED_MAX:
                self._followed += 1
                self._due[self._round + each.pause].append(each)
            else:
                self.over.append(each.begun)

    def _goes_on(self, each: Following, found: Times | None) -> bool:
        """Count the phases that are over now; return whether the generation is to be followed further."""
        if found is None or found.epoch != each.begun.epoch:
            return False
        if found.claimed_at and not each.claimed:
            each.claimed = True
            self._observe(each.begun.cause, CLAIM, found.claimed_at - found.committed_at)
        if found.first_ack_at:
            self._observe(each.begun.cause, FIRST_ACK, found.first_ack_at - found.claimed_at)
            return False
        left = each.began + ROUNDS_MAX - self._round
        each.pause = min(2 * each.pause if each.claimed else 1, left)
        return left > 0

    def _observe(self, cause: str, phase: str, ms: int) -> None:
        self._seconds.labels(cause, phase).observe(max(0, ms) / 1000)
