"""Records of the key ring about single machines: join tokens that nobody has used yet, and banned Worker names."""

from __future__ import annotations

import msgspec

JOIN_PREFIX = "dhj_"
JOIN_TTL_S = 600  # A join token without a lifetime of its own expires after this.
JOIN_TTL_MAX_S = 86_400  # A longer lifetime is refused.
NOT_JOINED = (
    "this join token is not valid: it is unknown, used or expired; ask an operator for another (dhsched worker invite)"
)
"""The answer to every join token that cannot be used, whatever is wrong with it."""


class JoinToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The store's record of a join token, `dhj_<id>_<secret>`: a hash of its text, and the Worker that it is for."""

    id: str
    hash: str
    name: str
    pool: str
    capacity: int
    expires_at_ms: int
    labels: str = ""


class Ban(msgspec.Struct, frozen=True, omit_defaults=True):
    """The store's record of a banned Worker name."""

    name: str
    banned_at_ms: int
    note: str = ""
