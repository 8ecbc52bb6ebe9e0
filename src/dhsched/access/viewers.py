"""Viewers: what a viewer token lets its bearer do. The tokens themselves are in viewer_tokens.py."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

Grant = Literal["watch", "say", "interrupt"]
GRANTS: tuple[Grant, ...] = get_args(Grant)
TTL_S = 3600  # A token without a lifetime of its own expires after this.
TTL_MAX_S = 12 * 3600  # A longer lifetime is refused: a single token cannot be revoked.
IDENTITY_CHARS_MAX = 64
IDENTITY_PATTERN = rf"[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]{{0,{IDENTITY_CHARS_MAX}}}"
"""Text without control characters, and without those that change the direction of the text around them."""
RATE_MIN_PER_S, RATE_MAX_PER_S = 0.01, 100.0


@dataclass(frozen=True, slots=True)
class Viewer:
    """The rights of one viewer token. `live` has its tenant; a rate of None is the room's own limit."""

    live: str
    grants: frozenset[Grant]
    identity: str = ""
    say_rate_per_s: float | None = None
    interrupt_rate_per_s: float | None = None


ANYTHING = Viewer("", frozenset(GRANTS))
"""The rights of everybody where viewers need no token."""


@dataclass(frozen=True, slots=True)
class VerifiedViewer:
    """A viewer whose token was verified. The token is accepted until `until` (wall-clock, leeway included), as long as
    the key `kid` exists."""

    viewer: Viewer
    kid: str
    number: str
    until: float

    @property
    def name(self) -> str:
        """Return the text that tells this viewer from the others of its live."""
        return self.viewer.identity or f"#{self.number}"


ANYBODY = VerifiedViewer(ANYTHING, kid="", number="", until=inf)
"""The viewer of every request where viewers need no token."""
