"""Every key of a cell. docs/reference/state.md says what each holds; a tidy test keeps the two lists equal.

All keys of a cell share one hash tag, so they are one slot of a cluster and one script can touch any of them. Ids have
no brace and no colon (types.py), so no id can name another key.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.types import check_id

SCHEMA = 2

SINGLE = (
    "cell",
    "lives",
    "workers",
    "boots",
    "pools",
    "digital_ids",
    "keys",
    "controllers",
    "events",
    "brake",
    "drains",
)
"""Keys of which a cell has one."""
PER_LIVE = ("live", "data", "input", "recent", "dead", "history")
PER_WORKER = ("worker", "slots")
PER_POOL = ("free", "waiting", "rebalanced")
OTHER = ("agenda", "blame", "trouble")
"""By class and, twice, by Worker name."""
NEVER = "never"
"""A key that never exists. Every script looks for it first, so that a slot that is being moved refuses the script
there, before its first write (lua/lib/base.lua)."""
CHANNELS = ("infer", "dispatch")
"""Where hints are published: to the controller that holds a pull, to the replica that holds a Worker's link."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cell."""

    cell_name: str

    def __post_init__(self) -> None:
        check_id(self.cell_name, "cell")

    @property
    def prefix(self) -> str:
        return f"dh:{{{self.cell_name}}}:"

    @property
    def cell(self) -> str:
        return f"{self.prefix}cell"

    def of(self, kind: str, name: str | int = "") -> str:
        """`live:<L>`, `slots:<W>`, ... or, without a name, one of the single keys."""
        return f"{self.prefix}{kind}:{name}" if name != "" else f"{self.prefix}{kind}"
