"""Handoff metrics: the phases of the generations that this replica committed, that is how long lives have no owner.

A replica that commits does not see the claim, so a loop reads the times later, for a bounded number of generations.
Further generations are not measured; nothing waits for the measurement.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram

from dhsched.store.records import Records
from dhsched.store.records.lives import Times

FOLLOWED_MAX = 1_000  # Generations followed at once; a further one is not measured.
LOOKS_MAX = 120  # Readings of one generation, a second apart; after these it is measured no further.
CLAIM, FIRST_ACK = "claim", "first_ack"
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(slots=True)
class Following:
    """One generation that is followed, and how far it has been measured."""

    live: str
    epoch: int
    cause: str
    looks: int = 0
    claimed: bool = False


class Handoffs:
    """The generations that this replica follows."""

    def __init__(self, records: Records, registry: CollectorRegistry) -> None:
        self._records = records
        self._followed: deque[Following] = deque()
        self._seconds = Histogram(
            "dhsched_handoff_seconds",
            "Phases of generations: commit to claim, claim to the first ack.",
            ["cause", "phase"],
            buckets=BUCKETS,
            registry=registry,
        )

    def follow(self, live: str, epoch: int, cause: str) -> None:
        if len(self._followed) < FOLLOWED_MAX:
            self._followed.append(Following(live, epoch, cause))

    async def round(self) -> None:
        """Read the times of every followed generation once, and count the phases that are over."""
        batch = [self._followed.popleft() for _ in range(len(self._followed))]
        times = await self._records.lives.times([each.live for each in batch])
        for each, found in zip(batch, times, strict=True):
            if self._goes_on(each, found) and len(self._followed) < FOLLOWED_MAX:
                self._followed.append(each)

    def _goes_on(self, each: Following, found: Times | None) -> bool:
        """Count the phases that are over now; return whether the generation is to be followed further."""
        each.looks += 1
        if found is None or found.epoch != each.epoch:
            return False
        if found.claimed_at and not each.claimed:
            each.claimed = True
            self._observe(each.cause, CLAIM, found.claimed_at - found.committed_at)
        if found.first_ack_at:
            self._observe(each.cause, FIRST_ACK, found.first_ack_at - found.claimed_at)
            return False
        return each.looks < LOOKS_MAX

    def _observe(self, cause: str, phase: str, ms: int) -> None:
        self._seconds.labels(cause, phase).observe(max(0, ms) / 1000)
