"""Small limits, so that a walk (walk.py) comes to all of them."""

from __future__ import annotations

from dhsched.ownership.limits import Limits

LIMITS = Limits(
    claim_wait_ms=200,
    start_wait_max_ms=600,
    ack_wait_ms=300,
    lease_ms=50,
    backoff_max_ms=400,
    ended_ttl_ms=100,
    move_expires_ms=500,
    reap_ms=300,
    boots_window_ms=1000,
    boots_max=4,
    walk_max=2,
    starts_create_max=2,
    starts_recover_max=1,
    cutovers_max=1,
    pending_max=6,
    producers_max=2,
    journal_entries_max=4,
    recent_min=2,
    recent_ms=1000,
    recent_max=4,
    poison_max=3,
    dead_max=1,
    history_max=2,
    term_step=1000,
)
