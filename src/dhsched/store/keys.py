"""Every key of a cell. docs/reference/state.md describes each; a tidy test keeps the two lists equal.

All keys of a cell share one hash tag, so they are one slot of a cluster and one script can touch any of them. Ids have
no brace and no colon (types.py), so no id can name another key.
"""

from __future__ import annotations

from dhsched.types import check_id

SCHEMA = 3

SINGLE = (
    "cell",
    "cells",
    "homes",
    "lives",
    "ended",
    "workers",
    "boots",
    "pools",
    "digital_ids",
    "tenants",
    "counts",
    "usage",
    "pending",
    "keys",
    "controllers",
    "replicas",
    "events",
    "audit",
    "brake",
    "drains",
    "restoring",
    "migrating",
)
"""Keys that a cell has once."""
PER_LIVE = ("live", "data", "input", "journal", "recent", "dead", "history", "said", "emits", "logs", "device")
PER_WORKER = ("worker", "slots", "slot_revs", "devices")
PER_POOL = ("free", "waiting", "rebalanced", "evening")
OTHER = ("agenda", "blame", "trouble")
"""The agenda by class; blame and trouble by Worker name."""
NEVER = "never"
"""A key that never exists. Every script looks for it first, so that a slot that is being moved refuses the script
there, before its first write (lua/lib/base.lua). So does the reading of beats (records/workers.py)."""
CHANNELS = ("infer", "dispatch", "due")
"""Channels of hints: to the controller that holds a pull, the replica that holds a Worker's link, all replicas."""


class Keys:
    """The keys of one cell."""

    __slots__ = ("cell", "cell_name", "prefix")

    def __init__(self, cell_name: str) -> None:
        self.cell_name = check_id(cell_name, "cell")
        self.prefix = f"dh:{{{cell_name}}}:"
        self.cell = self.of("cell")

    def of(self, kind: str, name: str | int = "") -> str:
        """Return the key `live:<L>`, `slots:<W>`, ... or, without a name, one of the single keys."""
        return f"{self.prefix}{kind}:{name}" if name != "" else f"{self.prefix}{kind}"
