"""Named points at which a process kills itself, for tests of a crash between any two store calls.

    DHSCHED_FAILPOINT=create.after:kill dhsched run dispatch ...

A point is armed only by the environment, when the process starts. `kill` is SIGKILL: nothing is flushed, closed or
answered. There is a point before and after each store call of Dispatch that changes something.
"""

from __future__ import annotations

import os
import signal

from dhsched.errors import BadSetting

VARIABLE = "DHSCHED_FAILPOINT"
CALLS = ("create", "reassign", "end", "set_worker", "configure", "push_again", "drop_dead")
"""Store calls of Dispatch that a request makes."""
LOOP_CALLS = ("recover",)
"""Store calls that the recovery loop makes."""
DRAIN_CALLS = ("drain_request", "reserve", "hold", "cut_over", "force")
"""Store calls of a drain, from the request to the last live."""
POINTS = tuple(f"{call}.{when}" for call in (*CALLS, *LOOP_CALLS, *DRAIN_CALLS) for when in ("before", "after"))


def armed(environment: dict[str, str] | None = None) -> str | None:
    """Return the armed point, or None. An unknown name raises BadSetting: a test with it would test nothing."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not given:
        return None
    point, _, action = given.partition(":")
    if point not in POINTS or action != "kill":
        raise BadSetting(f"{VARIABLE} is {given!r}; write point:kill, with a point out of {', '.join(POINTS)}")
    return point


point = armed()
"""The armed point of this process, or None."""


def die() -> None:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
