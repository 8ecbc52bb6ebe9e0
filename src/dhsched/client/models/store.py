"""The store as a Dispatch replica sees it: its home, its replicas, and what is known to be lost."""

from __future__ import annotations

import msgspec

from dhsched.types import NUMBER_MAX


class HomeOut(msgspec.Struct, frozen=True):
    """One home: one uninterrupted time of one primary. It began at position `pos` of the cell's history."""

    home: str
    pos: int
    since_ms: int


class StoreReplicaOut(msgspec.Struct, frozen=True):
    """A replica of the store's primary, as the primary sees it. `behind_bytes` is what it has not confirmed yet."""

    address: str
    state: str
    behind_bytes: int


class LossOut(msgspec.Struct, frozen=True):
    """Calls of one home that were answered and are lost: the replica was told of `told`, the store has up to `kept`."""

    home: str
    told: int
    kept: int
    calls: int


class StoreOut(msgspec.Struct, frozen=True):
    """The store. `losses` are those that the answering replica (`by`) knows of; the events have those of all."""

    by: str
    address: str
    server: str
    home: str
    pos: int
    term: int
    homes: list[HomeOut]
    appendonly: str
    """`no`, or how often the server writes its file to disk: `always`, `everysec`, `no fsync`; empty if unknown."""
    replicas: list[StoreReplicaOut]
    losses: list[LossOut]


class BeginTerm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin the term after `term`, which every live then is placed anew in."""

    term: int
    reason: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.term <= NUMBER_MAX:
            raise ValueError(f"term must be a number from 1 to {NUMBER_MAX}")
        if len(self.reason) > 200:
            raise ValueError("reason has more than 200 characters")


class TermOut(msgspec.Struct, frozen=True):
    """The term that has begun: generations up to `floor` are void."""

    term: int
    floor: int
