"""The sixteen steps, one file each, named as in the specification, the store and the documents.

Each is a pure function: `step(state, now, limits, **arguments) -> (state, outcome)`. docs/internals/protocol.md maps
each to its TLA+ action, its Lua file and its place in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dhsched.ownership.state import State
from dhsched.ownership.steps.ack_input import ack_input
from dhsched.ownership.steps.append_input import append_input
from dhsched.ownership.steps.cancel import cancel
from dhsched.ownership.steps.depart import depart
from dhsched.ownership.steps.end_live import end_live
from dhsched.ownership.steps.expire_worker import expire_worker
from dhsched.ownership.steps.hold import hold
from dhsched.ownership.steps.look import look
from dhsched.ownership.steps.new_term import new_term
from dhsched.ownership.steps.place import place
from dhsched.ownership.steps.pull import pull
from dhsched.ownership.steps.register_worker import register_worker
from dhsched.ownership.steps.release_input import release_input
from dhsched.ownership.steps.report import report
from dhsched.ownership.steps.reserve import reserve
from dhsched.ownership.steps.set_worker import set_worker

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
