"""The eighteen steps, one file each, named as in the specification, the store and the documents.

Each is a pure function: `step(state, now, limits, **arguments) -> (state, outcome)`. docs/internals/protocol.md maps
each to its TLA+ action, its Lua file and its place in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dhsched.ownership.limits import Limits
from dhsched.ownership.state import State
from dhsched.ownership.steps.ack_input import ack_input
from dhsched.ownership.steps.append_input import append_input
from dhsched.ownership.steps.cancel import cancel
from dhsched.ownership.steps.depart import depart
from dhsched.ownership.steps.emit import emit
from dhsched.ownership.steps.end_live import end_live
from dhsched.ownership.steps.enter import enter
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
        enter,
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
        emit,
        end_live,
        look,
        new_term,
    )
}
UNCOUNTED = frozenset({"enter", "release_input", "ack_input", "emit"})
"""Steps that do not count in `Cell.pos`: nobody is told of anything by them that could be lost. What was released is
released again, an ack that is lost only repeats items, and nothing is decided by a message that is lost."""
SAME_HOME = frozenset({"release_input", "ack_input", "emit"})
"""Steps that compare the home that their connection greeted, and not the server's name: they give out no number, and
are not counted. Every other step but `enter` compares both (`enter.is_home`)."""


def take(step: str, state: State, now: int, limits: Limits, **arguments: Any) -> tuple[State, Any]:
    """Take a step as the store does: a call that is answered is counted, and `wakes` are this step's."""
    if step not in UNCOUNTED:
        state = replace(state, cell=replace(state.cell, pos=state.cell.pos + 1), wakes=frozenset())
    elif state.wakes:
        state = replace(state, wakes=frozenset())
    return STEPS[step](state, now, limits, **arguments)


__all__ = ["SAME_HOME", "STEPS", "UNCOUNTED", "Step", "take", *STEPS]
