"""The limits of a chaos run: the product's, with waits short enough that a storm of seconds meets all of them."""

from __future__ import annotations

from dhsched.ownership.limits import Limits

CHAOS_LIMITS = Limits(
    claim_wait_ms=2_000,
    start_wait_max_ms=20_000,
    ack_wait_ms=2_000,
    lease_ms=500,
    backoff_max_ms=3_000,
    ended_ttl_ms=60_000,
    move_expires_ms=6_000,
    reap_ms=15_000,
)
CREDIT = 8
"""Of an Infer-Controller: how much of a live's input may be in the hands of a generation that was superseded."""
