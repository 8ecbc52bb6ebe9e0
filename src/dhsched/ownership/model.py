"""The sixteen steps, by the names they have in the specification, the store and the documents.

Each is a pure function: `step(state, now, limits, **arguments) -> (state, outcome)`. docs/protocol.md maps each to its
TLA+ action, its Lua file and its place in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dhsched.ownership.ending import end_live
from dhsched.ownership.input import ack_input, append_input, pull, release_input
from dhsched.ownership.looking import look, new_term
from dhsched.ownership.outcomes import Outcome
from dhsched.ownership.placing import Create, cancel, hold, place, reserve
from dhsched.ownership.state import State
from dhsched.ownership.workers import depart, expire_worker, register_worker, report, set_worker

Step = Callable[..., tuple[State, Any]]

STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        register_worker,
        report,
        set_worker,
        expire_worker,
        depart,
        place,
        reserve,
        hold,
        cancel,
        pull,
        append_input,
        release_input,
        ack_input,
        end_live,
        look,
        new_term,
    )
}

__all__ = ["STEPS", "Create", "Outcome", "Step", *STEPS]
