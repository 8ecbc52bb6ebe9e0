"""The store as a Dispatch replica sees it: its home, its replicas, and what is known to be lost."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dhsched.client.models.base import Strict
from dhsched.types import TERM_MAX


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
    settled_by: int = 0
    """Replicas that must have a call before anybody is told of it: `replicas` of the store's URL."""
    unsettled: str = ""
    """Why the store's answers cannot be passed on now; empty if they can."""


class BeginTerm(Strict):
    """Begin the term after `term`: every live is placed anew in it. The event shows the reason."""

    term: Annotated[int, msgspec.Meta(ge=1, le=TERM_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class TermOut(msgspec.Struct, frozen=True):
    """The term that has begun: generations up to `floor` are void."""

    term: int
    floor: int
