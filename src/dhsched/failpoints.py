"""Named points at which a process can be made to kill itself: how "any instruction" is tested.

    DHSCHED_FAILPOINT=create.after:kill dhsched run dispatch ...

Armed by the environment only, when the process starts. `kill` is SIGKILL: nothing is flushed, closed or said. Points
lie before and after each store call of a role, where a crash leaves the most to wonder about.
"""

from __future__ import annotations

import os
import signal

from dhsched.errors import BadSetting

VARIABLE = "DHSCHED_FAILPOINT"
CALLS = ("create", "reassign", "end", "set_worker", "configure", "push_again", "drop_dead")
"""The store calls of dispatch that change something because of a request."""
LOOP_CALLS = ("recover",)
"""Those that the recovery loop makes by itself."""
DRAIN_CALLS = ("drain_request", "reserve", "hold", "cut_over", "force")
"""Those of a drain, from the request to the last live."""
POINTS = tuple(f"{call}.{when}" for call in (*CALLS, *LOOP_CALLS, *DRAIN_CALLS) for when in ("before", "after"))


def armed(environment: dict[str, str] | None = None) -> str | None:
    """The point that is armed, if any; a name that does not exist is refused, or a test would test nothing."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not given:
        return None
    point, _, action = given.partition(":")
    if point not in POINTS or action != "kill":
        raise BadSetting(f"{VARIABLE} is {given!r}; write point:kill, with a point out of {', '.join(POINTS)}")
    return point


point = armed()
"""The point that is armed in this process."""


def die() -> None:
    """What happens at the point."""
    os.kill(os.getpid(), signal.SIGKILL)
